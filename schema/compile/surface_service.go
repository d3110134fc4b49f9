package compile

import (
	"sync/atomic"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// Where traffic goes: service.cue.

type service struct {
	entry
	Endpoints      []endpoint        `cue:"endpoints"`
	DNS            string            `cue:"dns"`
	DNSType        string            `cue:"dns_type"`
	DNSRefresh     time.Duration     `cue:"dns_refresh"`
	DNSFamily      string            `cue:"dns_family"`
	Discovered     string            `cue:"discovered"`
	Failover       []string          `cue:"failover"`
	Protocol       string            `cue:"protocol"`
	LB             string            `cue:"lb"`
	LBSettings     *lbSettings       `cue:"lb_settings"`
	Health         *health           `cue:"health"`
	Outliers       *outliers         `cue:"outliers"`
	Breakers       *breakers         `cue:"breakers"`
	TLS            *serviceTLS       `cue:"tls"`
	ConnectTimeout time.Duration     `cue:"connect_timeout"`
	IdleTimeout    time.Duration     `cue:"idle_timeout"`
	Rename         string            `cue:"rename"`
	Allow          map[string]string `cue:"allow"`

	// What the service was made into, unless it is patched: a tree that holds the
	// same package need not make it again.
	clusters  [2]atomic.Pointer[schema.Resource] // by kind of client
	endpoints atomic.Pointer[schema.Resource]
}

type endpoint struct {
	entry
	Address  string            `cue:"address"`
	Region   string            `cue:"region"`
	Zone     string            `cue:"zone"`
	SubZone  string            `cue:"sub_zone"`
	Priority uint32            `cue:"priority"`
	Weight   uint32            `cue:"weight"`
	Health   string            `cue:"health"`
	Hostname string            `cue:"hostname"`
	Metadata map[string]string `cue:"metadata"`
}

type lbSettings struct {
	entry
	Choices    uint32        `cue:"choices"`
	ActiveBias float64       `cue:"active_bias"`
	SlowStart  time.Duration `cue:"slow_start"`
	MinRing    uint64        `cue:"min_ring"`
	MaxRing    uint64        `cue:"max_ring"`
	Hash       string        `cue:"hash"`
	Table      uint64        `cue:"table"`
	Zones      string        `cue:"zones"`
	Panic      float64       `cue:"panic"`
}

type health struct {
	entry
	HTTP      string        `cue:"http"`
	GRPC      bool          `cue:"grpc"`
	TCP       bool          `cue:"tcp"`
	Interval  time.Duration `cue:"interval"`
	Timeout   time.Duration `cue:"timeout"`
	Healthy   uint32        `cue:"healthy"`
	Unhealthy uint32        `cue:"unhealthy"`
	Host      string        `cue:"host"`
	Statuses  []uint32      `cue:"statuses"`
	Service   string        `cue:"service"`
}

type outliers struct {
	entry
	Consecutive5xx     uint32        `cue:"consecutive_5xx"`
	ConsecutiveGateway uint32        `cue:"consecutive_gateway"`
	FailurePercent     uint32        `cue:"failure_percent"`
	SuccessDeviation   float64       `cue:"success_deviation"`
	MinRequests        uint32        `cue:"min_requests"`
	Interval           time.Duration `cue:"interval"`
	Ejection           time.Duration `cue:"ejection"`
	MaxEjection        time.Duration `cue:"max_ejection"`
	MaxPercent         uint32        `cue:"max_percent"`
}

type breakers struct {
	entry
	Connections uint32  `cue:"connections"`
	Pending     uint32  `cue:"pending"`
	Requests    uint32  `cue:"requests"`
	Retries     uint32  `cue:"retries"`
	RetryBudget float64 `cue:"retry_budget"`
}

type serviceTLS struct {
	entry
	SNI        string   `cue:"sni"`
	SANs       []string `cue:"sans"`
	Trust      string   `cue:"trust"`
	MinVersion string   `cue:"min_version"`
	Secret     string   `cue:"secret"`
	CA         string   `cue:"ca"`
}
