package compile

import (
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// The typed surface: what schema.cue says, as Go. Each struct keeps the node
// that it was decoded from, so that what is wrong has a line.

// entry is the node that a struct was decoded from.
type entry struct{ At *node }

func (e entry) node() *node { return e.At }

// config is one package.
type config struct {
	Groups    map[string]*group               `cue:"groups"`
	Listeners map[string]*listener            `cue:"listeners"`
	Routes    map[string]*routes              `cue:"routes"`
	Services  map[string]*service             `cue:"services"`
	Secrets   map[string]*secret              `cue:"secrets"`
	Resources map[string]map[string]*resource `cue:"resources"`
	Patches   map[string]map[string]*patch    `cue:"patches"`
	Tests     map[string]*test                `cue:"tests"`
	Settings  settings                        `cue:"sluice"`
}

type group struct {
	entry
	Client   string            `cue:"client"`
	Match    match             `cue:"match"`
	Priority int               `cue:"priority"`
	Versions []string          `cue:"versions"`
	External []string          `cue:"external"`
	Rollout  rollout           `cue:"rollout"`
	TTL      timesToLive       `cue:"ttl"`
	Allow    map[string]string `cue:"allow"`
}

type match struct {
	ID        string            `cue:"id"`
	Cluster   string            `cue:"cluster"`
	UserAgent string            `cue:"user_agent"`
	Zone      string            `cue:"zone"`
	Metadata  map[string]string `cue:"metadata"`
}

type rollout struct {
	After []string      `cue:"after"`
	Waves []wave        `cue:"waves"`
	Bake  time.Duration `cue:"bake"`
	Drain time.Duration `cue:"drain"`

	Isolate bool `cue:"isolate"`
}

// timesToLive are by type; 0 is none.
type timesToLive struct {
	entry
	Clusters     time.Duration `cue:"clusters"`
	Endpoints    time.Duration `cue:"endpoints"`
	Secrets      time.Duration `cue:"secrets"`
	Extensions   time.Duration `cue:"extensions"`
	Listeners    time.Duration `cue:"listeners"`
	ScopedRoutes time.Duration `cue:"scoped-routes"`
	Routes       time.Duration `cue:"routes"`
	Runtimes     time.Duration `cue:"runtimes"`
}

func (t *timesToLive) byType() map[schema.Type]time.Duration {
	return map[schema.Type]time.Duration{
		schema.Clusters: t.Clusters, schema.Endpoints: t.Endpoints, schema.Secrets: t.Secrets, schema.Extensions: t.Extensions,
		schema.Listeners: t.Listeners, schema.ScopedRoutes: t.ScopedRoutes, schema.Routes: t.Routes, schema.Runtimes: t.Runtimes,
	}
}

type wave struct {
	entry
	Percent int  `cue:"percent"`
	Count   int  `cue:"count"`
	Rest    bool `cue:"rest"`
}

type secret struct {
	entry
	Node *nodeSecret `cue:"node"`
	File string      `cue:"file"`
	Env  string      `cue:"env"`
}

type nodeSecret struct {
	entry
	Cert string `cue:"cert"`
	Key  string `cue:"key"`
	CA   string `cue:"ca"`
}

// resource is an Envoy message; its fields are read as protojson.
type resource struct {
	entry
	Groups []string          `cue:"groups"`
	Allow  map[string]string `cue:"allow"`
}

// patch is merged onto a generated resource.
type patch struct {
	entry
	Allow map[string]string `cue:"allow"`
}

type test struct {
	entry
	Request request `cue:"request"`
	Expect  expect  `cue:"expect"`
}

type request struct {
	entry
	Host    string            `cue:"host"`
	Path    string            `cue:"path"`
	Method  string            `cue:"method"`
	Scheme  string            `cue:"scheme"`
	Headers map[string]string `cue:"headers"`
	Query   map[string]string `cue:"query"`

	Listener string `cue:"listener"`
}

type expect struct {
	entry
	Service  string            `cue:"service"`
	Split    map[string]uint32 `cue:"split"`
	Redirect string            `cue:"redirect"`
	Status   uint32            `cue:"status"`
	Path     string            `cue:"path"`
	Host     string            `cue:"host"`
	Headers  map[string]string `cue:"headers"`
	Timeout  time.Duration     `cue:"timeout"`
}

type settings struct {
	Base  bool   `cue:"base"`
	Owner string `cue:"owner"`
}

// topLevel are the fields that a package may hold.
var topLevel = fieldsOf[config]()

// resourceKinds are the types that "resources" may hold, by their word.
var resourceKinds = func() map[string]schema.Type {
	m := map[string]schema.Type{}
	for _, t := range schema.AllTypes() {
		m[t.String()] = t
	}
	return m
}()
