package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-xds/sluice/ads"
	"github.com/sluice-xds/sluice/reconcile"
	"github.com/sluice-xds/sluice/schema"
)

// metricsHandler serves what a loop and its server count. It reads counters that
// are kept anyway: a scrape costs the update path nothing. No label is a node's.
func metricsHandler(loop *reconcile.Loop, cfg *serverConfig) http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(meters{loop}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelError), MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", (&admin{loop: loop, cfg: cfg}).ready)
	return mux
}

// newMeter names one metric. Names have base units, as docs/metrics.md lists them.
func newMeter(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_"+name, help, labels, nil)
}

var (
	requestsMeter  = newMeter("xds_requests_total", "Requests received, by resource type.", "type")
	responsesMeter = newMeter("xds_responses_total", "Responses sent, by resource type.", "type")
	bytesMeter     = newMeter("xds_response_bytes_total", "Bytes of responses, by resource type.", "type")
	nacksMeter     = newMeter("xds_nacks_total", "Responses that a node refused, by resource type.", "type")
	acksMeter      = newMeter("xds_ack_seconds", "Time from a response to its ACK, by resource type.", "type")
	begunMeter     = newMeter("xds_streams_begun_total", "Streams that began.")
	endedMeter     = newMeter("xds_streams_ended_total", "Streams that ended, and polls that were turned away, by reason.", "reason")
	delayedMeter   = newMeter("xds_requests_delayed_total", "Requests that waited because their stream sent too many.")
	streamsMeter   = newMeter("xds_streams", "Open streams.")
	sessionsMeter  = newMeter("xds_sessions", "Sessions: a node's process, whatever its streams.")
	nodesMeter     = newMeter("xds_nodes_remembered", "Nodes that the server remembers, connected or not.")
	queueMeter     = newMeter("xds_ledger_queue", "Sessions whose state has still to be written to the ledger.")
	stagesMeter    = newMeter("stage_seconds", "Time from the opening of a stage of a session to its last ACK, by stage.", "stage")
	convergedMeter = newMeter("session_convergence_seconds", "Time from a session's new path to the ACK of its last routes.")

	pollsMeter      = newMeter("git_poll_seconds", "Time of a look at the branch, fetch included.")
	pollErrorsMeter = newMeter("git_poll_errors_total", "Looks at the branch that failed.")
	polledMeter     = newMeter("git_polled_timestamp_seconds", "When the branch was last looked at, since 1970; 0 for never.")
	compilesMeter   = newMeter("compile_seconds", "Time to compile a commit.")
	rejectedMeter   = newMeter("commits_rejected_total", "Commits that do not compile.")
	rolloutsMeter   = newMeter("rollout_seconds", "Time from the opening of a group's rollout to its convergence.")
	haltsMeter      = newMeter("rollout_halts_total", "Rollouts that halted.")
	stateMeter      = newMeter("group_state", "1 for the state that a group is in, 0 for all others.", "group", "state")
	groupMeter      = newMeter("group_nodes", "Nodes of a group, by condition.", "group", "condition")
	faultMeter      = newMeter("fault", "1 while something is wrong with what the server reads or keeps.", "what")
)

// groupStates are those of status, each a label.
var groupStates = []string{
	reconcile.Converged, reconcile.RollingOut, reconcile.Halted, reconcile.Waiting, reconcile.Unsupported, reconcile.Gone,
	reconcile.PausedState, reconcile.ParkedState,
}

// meters collects all of them from a loop.
type meters struct{ loop *reconcile.Loop }

// Describe sends no metric's description but by collecting: the labels are known
// only then.
func (m meters) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m meters) Collect(ch chan<- prometheus.Metric) {
	out := samples(ch)
	out.wire(m.loop.Server())
	out.work(m.loop.Stats())
	out.status(m.loop.Status())
}

type samples chan<- prometheus.Metric

func (ch samples) count(d *prometheus.Desc, n *atomic.Uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n.Load()), labels...)
}

func (ch samples) gauge(d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (ch samples) histogram(d *prometheus.Desc, h *ads.Histogram, labels ...string) {
	count, sum, upTo := h.Read()
	ch <- prometheus.MustNewConstHistogram(d, count, sum, upTo, labels...)
}

// wire is what the xDS side counts.
func (ch samples) wire(srv *ads.Server) {
	st := srv.Stats()
	for _, t := range schema.AllTypes() {
		of := &st.Types[t]
		ch.count(requestsMeter, &of.Requests, t.String())
		ch.count(responsesMeter, &of.Responses, t.String())
		ch.count(bytesMeter, &of.Bytes, t.String())
		ch.count(nacksMeter, &of.Nacks, t.String())
		ch.histogram(acksMeter, &of.Acks, t.String())
	}
	for k := range schema.StageKind(schema.NumStages) {
		ch.histogram(stagesMeter, &st.Stages[k], k.String())
	}
	ch.histogram(convergedMeter, &st.Converged)
	ch.count(begunMeter, &st.Begun)
	for r := range ads.NumReasons {
		ch.count(endedMeter, &st.Ended[r], r.String())
	}
	ch.count(delayedMeter, &st.Delayed)
	g := srv.Gauges()
	ch.gauge(streamsMeter, float64(g.Streams))
	ch.gauge(sessionsMeter, float64(g.Sessions))
	ch.gauge(nodesMeter, float64(g.Nodes))
	ch.gauge(queueMeter, float64(g.Queue))
}

// work is what the loop counts.
func (ch samples) work(st *reconcile.Stats) {
	ch.histogram(pollsMeter, &st.Polls)
	ch.count(pollErrorsMeter, &st.PollErrors)
	ch.histogram(compilesMeter, &st.Compiles)
	ch.count(rejectedMeter, &st.Rejected)
	ch.histogram(rolloutsMeter, &st.Rollouts)
	ch.count(haltsMeter, &st.Halts)
}

// status is where the groups stand.
func (ch samples) status(st *reconcile.Status) {
	polled := 0.0
	if at := st.Source.PolledAt; !at.IsZero() {
		polled = float64(at.UnixMilli()) / 1000
	}
	ch.gauge(polledMeter, polled)
	ch.gauge(faultMeter, truth(st.Source.Error != ""), "source")
	ch.gauge(faultMeter, truth(st.StoreError != ""), "store")
	ch.gauge(faultMeter, truth(st.Rejected != nil), "commit")
	for _, g := range st.Groups {
		for _, state := range groupStates {
			ch.gauge(stateMeter, truth(g.State == state), g.Name, state)
		}
		for condition, n := range map[string]int{
			"connected": g.Connected, "expected": g.Expected, "at_target": g.AtTarget, "done": g.Done, "nacked": g.Nacks,
		} {
			ch.gauge(groupMeter, float64(n), g.Name, condition)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
