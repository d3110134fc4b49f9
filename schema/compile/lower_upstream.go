package compile

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// lbSettingOf says for which load balancers a setting is; those that it does not
// list are for all.
var lbSettingOf = map[string][]string{
	"choices": {"least_request"}, "active_bias": {"least_request"}, "slow_start": {"round_robin", "least_request"},
	"min_ring": {"ring_hash"}, "max_ring": {"ring_hash"}, "hash": {"ring_hash"}, "table": {"maglev"},
}

func (l *lbSettings) lower(lb string, c *clusterv3.Cluster) {
	if l == nil {
		return
	}
	var slow *clusterv3.Cluster_SlowStartConfig
	if l.SlowStart > 0 {
		slow = &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: duration(l.SlowStart)}
	}
	switch {
	case lb == "round_robin" && slow != nil:
		c.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slow}}
	case lb == "least_request" && (slow != nil || l.Choices > 0 || l.At.get("active_bias") != nil):
		config := &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slow, ChoiceCount: count(l.Choices)}
		if l.At.get("active_bias") != nil {
			config.ActiveRequestBias = &corev3.RuntimeDouble{DefaultValue: l.ActiveBias, RuntimeKey: "upstream.least_request.active_request_bias"}
		}
		c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: config}
	case lb == "ring_hash" && (l.MinRing > 0 || l.MaxRing > 0 || l.Hash != ""):
		config := &clusterv3.Cluster_RingHashLbConfig{}
		if l.MinRing > 0 {
			config.MinimumRingSize = wrapperspb.UInt64(l.MinRing)
		}
		if l.MaxRing > 0 {
			config.MaximumRingSize = wrapperspb.UInt64(l.MaxRing)
		}
		if l.Hash == "murmur2" {
			config.HashFunction = clusterv3.Cluster_RingHashLbConfig_MURMUR_HASH_2
		}
		c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{RingHashLbConfig: config}
	case lb == "maglev" && l.Table > 0:
		c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(l.Table)}}
	}
	l.common(c)
}

func (l *lbSettings) common(c *clusterv3.Cluster) {
	if l.Zones == "" && l.At.get("panic") == nil {
		return
	}
	c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{}
	switch l.Zones {
	case "weighted":
		c.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	case "near":
		c.CommonLbConfig.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{
			ZoneAwareLbConfig: &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{},
		}
	}
	if l.At.get("panic") != nil {
		c.CommonLbConfig.HealthyPanicThreshold = &typev3.Percent{Value: l.Panic}
	}
}

// count is nil for 0: for fields where 0 means that nothing is said.
func count(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}

// lower makes outlier detection. What Envoy only watches by default (gateway
// errors, failure percentages) is enforced once it is asked for.
func (o *outliers) lower() *clusterv3.OutlierDetection {
	d := &clusterv3.OutlierDetection{
		Consecutive_5Xx: count(o.Consecutive5xx), Interval: duration(o.Interval),
		BaseEjectionTime: duration(o.Ejection), MaxEjectionTime: duration(o.MaxEjection),
	}
	if o.At.get("consecutive_5xx") != nil && o.Consecutive5xx == 0 {
		d.EnforcingConsecutive_5Xx = wrapperspb.UInt32(0)
	}
	if o.At.get("max_percent") != nil {
		d.MaxEjectionPercent = wrapperspb.UInt32(o.MaxPercent)
	}
	if o.ConsecutiveGateway > 0 {
		d.ConsecutiveGatewayFailure = wrapperspb.UInt32(o.ConsecutiveGateway)
		d.EnforcingConsecutiveGatewayFailure = wrapperspb.UInt32(100)
	}
	if o.FailurePercent > 0 {
		d.FailurePercentageThreshold = wrapperspb.UInt32(o.FailurePercent)
		d.EnforcingFailurePercentage = wrapperspb.UInt32(100)
	}
	if o.SuccessDeviation > 0 {
		d.SuccessRateStdevFactor = wrapperspb.UInt32(uint32(o.SuccessDeviation*1000 + 0.5))
		d.EnforcingSuccessRate = wrapperspb.UInt32(100)
	}
	if o.At.get("min_requests") != nil {
		if o.FailurePercent > 0 {
			d.FailurePercentageRequestVolume = wrapperspb.UInt32(o.MinRequests)
		}
		if o.SuccessDeviation > 0 {
			d.SuccessRateRequestVolume = wrapperspb.UInt32(o.MinRequests)
		}
	}
	return d
}

func (b *breakers) lower() *clusterv3.CircuitBreakers {
	t := &clusterv3.CircuitBreakers_Thresholds{
		MaxConnections: count(b.Connections), MaxPendingRequests: count(b.Pending),
		MaxRequests: count(b.Requests), MaxRetries: count(b.Retries),
	}
	if b.RetryBudget > 0 {
		t.RetryBudget = &clusterv3.CircuitBreakers_Thresholds_RetryBudget{BudgetPercent: &typev3.Percent{Value: b.RetryBudget}}
	}
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{t}}
}
