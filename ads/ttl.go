package ads

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-xds/sluice/schema"
)

// Resources may be given a time to live: a client that hears nothing for so long
// drops them by itself. A heartbeat, the resource without its body, renews the
// time (rule S11).

// features are what a client says that it can do, as far as it matters here.
type features uint8

const (
	dropsByTTL features = 1 << iota // xds.config.supports-resource-ttl
	unwraps                         // xds.config.resource-in-sotw
)

func featureOf(name []byte) features {
	switch string(name) {
	case "xds.config.supports-resource-ttl":
		return dropsByTTL
	case "xds.config.resource-in-sotw":
		return unwraps
	}
	return 0
}

// beatsPerTTL is how many heartbeats go in a time to live: two may be lost, or
// wait for the answer to what is in flight.
const beatsPerTTL = 3

// ttl is the time to live of a session's resources of a type, or 0. Virtual hosts
// have none: without a body they mean that there is no such host (rule D12).
func (s *session) ttl(t schema.Type) time.Duration {
	ttl, st := s.target.TTL[t], s.types[t].stream
	if ttl <= 0 || st == nil || st.features&dropsByTTL == 0 || st.of == sotw && st.features&unwraps == 0 || t == schema.VirtualHosts {
		return 0
	}
	return ttl
}

// beat sends the heartbeat of a type if it is due and nothing is in flight. What
// the client is known to hold goes without its body. Where that is uncertain, the
// body goes too; and always in a state-of-the-world response that is the whole
// truth: Envoy takes one without bodies for one that removes everything.
func (s *session) beat(t schema.Type, now time.Time) {
	ts, f := &s.types[t], &s.facts.Types[t]
	if ts.sub == nil || s.closed || f.InFlight || now.Before(ts.beatAt) {
		return
	}
	ttl := s.ttl(t)
	if ttl == 0 {
		return
	}
	// What a refused response would have removed may still be there.
	held := f.Acked.Filter(func(r *schema.Resource) bool { return r.Body != nil }).Union(ts.unknown.Filter(func(r *schema.Resource) bool {
		return r.Body != nil && ts.refused.versions[r.Name] != r.Version
	}))
	if held.Len() == 0 {
		return
	}
	next := content{of: ts.stream.of, t: t, want: held, set: held, ttl: ttl, beat: true}
	if next.of == delta {
		next.label = s.target.Commit
	}
	next.bodies = ts.unknown.Len() > 0 || next.whole() || next.of == sotw && !held.Equal(s.desired(t))
	ts.beatAt = now.Add(ttl / beatsPerTTL)
	s.post(t, s.srv.bodies.get(next))
}

// nextBeat is when the next heartbeat is due, or a time that is earlier anyway;
// zero means none. One that waits for an answer goes behind that.
func (s *session) nextBeat(at, now time.Time) time.Time {
	for t := range s.types {
		if b := s.types[t].beatAt; b.After(now) && (at.IsZero() || b.Before(at)) && s.ttl(schema.Type(t)) > 0 {
			at = b
		}
	}
	return at
}

// relive has all that a client holds of a type sent again if its time to live is
// another from now on.
func (s *session) relive(before *schema.Target, now time.Time) (changed bool) {
	for t := range s.types {
		if before.TTL[t] == s.target.TTL[t] {
			continue
		}
		f := &s.facts.Types[t]
		f.Resend = f.Resend.Union(f.Acked)
		s.types[t].beatAt = now.Add(s.target.TTL[t] / beatsPerTTL)
		changed = true
	}
	return changed
}

// Fields of google.protobuf.Any and of google.protobuf.Duration.
const (
	anyURL          = 1
	durationSeconds = 1
	durationNanos   = 2
)

const resourceURL = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// appendTTL adds the time to live to a Resource.
func appendTTL(b []byte, ttl time.Duration) []byte {
	if ttl == 0 {
		return b
	}
	d := protowire.AppendVarint(protowire.AppendTag(nil, durationSeconds, protowire.VarintType), uint64(ttl/time.Second))
	d = protowire.AppendVarint(protowire.AppendTag(d, durationNanos, protowire.VarintType), uint64(ttl%time.Second))
	return protowire.AppendBytes(protowire.AppendTag(b, resourceTTL, protowire.BytesType), d)
}

// wrapped is a resource with a time to live in a state-of-the-world response. Its
// version is the response's: that is how Envoy tells a heartbeat.
func (b *body) wrapped(r *schema.Resource) []byte {
	w := appendString(nil, resourceName, r.Name)
	w = appendString(w, resourceVersion, string(b.version))
	w = appendTTL(w, b.ttl)
	if b.brings() {
		w = append(w, r.Chunk()...)
	}
	a := appendString(nil, anyURL, resourceURL)
	a = protowire.AppendBytes(protowire.AppendTag(a, anyValue, protowire.BytesType), w)
	return protowire.AppendBytes(protowire.AppendTag(nil, resourceList, protowire.BytesType), a)
}

// brings reports whether a response has the bodies of its resources.
func (c *content) brings() bool { return !c.beat || c.bodies }
