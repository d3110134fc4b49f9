package compile

import "time"

// What listens and what routes: listener.cue and routes.cue.

type listener struct {
	entry
	Groups        []string          `cue:"groups"`
	Bind          string            `cue:"bind"`
	Target        string            `cue:"target"`
	Serve         string            `cue:"serve"`
	Protocol      string            `cue:"protocol"`
	TLS           *listenerTLS      `cue:"tls"`
	HTTPSRedirect bool              `cue:"https_redirect"`
	AccessLog     *accessLog        `cue:"access_log"`
	ProxyProtocol bool              `cue:"proxy_protocol"`
	Edge          bool              `cue:"edge"`
	TrustedHops   uint32            `cue:"trusted_hops"`
	IdleTimeout   time.Duration     `cue:"idle_timeout"`
	Allow         map[string]string `cue:"allow"`
}

type listenerTLS struct {
	entry
	Secret     string     `cue:"secret"`
	MinVersion string     `cue:"min_version"`
	ALPN       []string   `cue:"alpn"`
	Client     *clientTLS `cue:"client"`
}

type clientTLS struct {
	entry
	CA       string   `cue:"ca"`
	SANs     []string `cue:"sans"`
	Optional bool     `cue:"optional"`
}

type accessLog struct {
	entry
	Path   string            `cue:"path"`
	Format string            `cue:"format"`
	JSON   map[string]string `cue:"json"`
}

type routes struct {
	entry
	Listeners []string          `cue:"listeners"`
	Hosts     []string          `cue:"hosts"`
	Priority  int               `cue:"priority"`
	Rules     []rule            `cue:"rules"`
	TCP       *tcpRule          `cue:"tcp"`
	Allow     map[string]string `cue:"allow"`
}

type tcpRule struct {
	entry
	Service         string            `cue:"service"`
	Split           map[string]uint32 `cue:"split"`
	IdleTimeout     time.Duration     `cue:"idle_timeout"`
	ConnectAttempts uint32            `cue:"connect_attempts"`
}

type rule struct {
	entry
	Match           ruleMatch         `cue:"match"`
	Service         string            `cue:"service"`
	Split           map[string]uint32 `cue:"split"`
	Redirect        *redirect         `cue:"redirect"`
	Respond         *respond          `cue:"respond"`
	Timeout         time.Duration     `cue:"timeout"`
	IdleTimeout     time.Duration     `cue:"idle_timeout"`
	Retry           *retry            `cue:"retry"`
	Mirror          *mirror           `cue:"mirror"`
	Rewrite         *rewrite          `cue:"rewrite"`
	CORS            *cors             `cue:"cors"`
	RequestHeaders  *headerChanges    `cue:"request_headers"`
	ResponseHeaders *headerChanges    `cue:"response_headers"`
	Websocket       bool              `cue:"websocket"`
	Hash            []hashOn          `cue:"hash"`
}

type ruleMatch struct {
	entry
	Path          string                `cue:"path"`
	Prefix        string                `cue:"prefix"`
	Template      string                `cue:"template"`
	Regex         string                `cue:"regex"`
	GRPC          string                `cue:"grpc"`
	IgnoreCase    bool                  `cue:"ignore_case"`
	Method        string                `cue:"method"`
	Methods       []string              `cue:"methods"`
	Headers       map[string]string     `cue:"headers"`
	HeaderMatches map[string]valueMatch `cue:"header_matches"`
	Query         map[string]string     `cue:"query"`
	QueryMatches  map[string]valueMatch `cue:"query_matches"`
}

type valueMatch struct {
	entry
	Exact      string `cue:"exact"`
	Prefix     string `cue:"prefix"`
	Suffix     string `cue:"suffix"`
	Contains   string `cue:"contains"`
	Regex      string `cue:"regex"`
	Present    bool   `cue:"present"`
	Invert     bool   `cue:"invert"`
	IgnoreCase bool   `cue:"ignore_case"`
}

type redirect struct {
	entry
	HTTPS      bool          `cue:"https"`
	Host       string        `cue:"host"`
	Port       uint32        `cue:"port"`
	Path       string        `cue:"path"`
	Prefix     string        `cue:"prefix"`
	Regex      *substitution `cue:"regex"`
	StripQuery bool          `cue:"strip_query"`
	Status     uint32        `cue:"status"`
}

type respond struct {
	Status uint32 `cue:"status"`
	Body   string `cue:"body"`
}

type retry struct {
	entry
	On                []string      `cue:"on"`
	Attempts          uint32        `cue:"attempts"`
	PerTryTimeout     time.Duration `cue:"per_try_timeout"`
	PerTryIdleTimeout time.Duration `cue:"per_try_idle_timeout"`
	StatusCodes       []uint32      `cue:"status_codes"`
	Backoff           time.Duration `cue:"backoff"`
	MaxBackoff        time.Duration `cue:"max_backoff"`
	OtherHost         bool          `cue:"other_host"`
}

type mirror struct {
	entry
	Service string  `cue:"service"`
	Percent float64 `cue:"percent"`
}

type rewrite struct {
	entry
	Prefix      string        `cue:"prefix"`
	Regex       *substitution `cue:"regex"`
	Template    string        `cue:"template"`
	Host        string        `cue:"host"`
	HostHeader  string        `cue:"host_header"`
	ServiceHost bool          `cue:"service_host"`
}

type substitution struct {
	entry
	Pattern string `cue:"pattern"`
	With    string `cue:"with"`
}

type cors struct {
	entry
	Origins     []string      `cue:"origins"`
	Methods     []string      `cue:"methods"`
	Headers     []string      `cue:"headers"`
	Expose      []string      `cue:"expose"`
	Credentials bool          `cue:"credentials"`
	MaxAge      time.Duration `cue:"max_age"`
}

type headerChanges struct {
	entry
	Set    map[string]string `cue:"set"`
	Add    map[string]string `cue:"add"`
	Remove []string          `cue:"remove"`
}

type hashOn struct {
	entry
	Header   string        `cue:"header"`
	Cookie   string        `cue:"cookie"`
	TTL      time.Duration `cue:"ttl"`
	Query    string        `cue:"query"`
	SourceIP bool          `cue:"source_ip"`
	Terminal bool          `cue:"terminal"`
}
