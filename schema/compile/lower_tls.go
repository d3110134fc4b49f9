package compile

import (
	"net/netip"
	"path"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-xds/sluice/schema"
)

const tlsName = "envoy.transport_sockets.tls"

// secret makes the resource that says where on the node a secret is. It is a live
// type: what refers to it does not change when it does.
func (lo *lowering) secret(name string, s *secret) {
	if s.Node == nil {
		return // said before
	}
	origin := schema.Origin{Kind: "secret", Name: name, Pos: s.At.pos}
	lo.share(lo.resource(s.Node.lower(name), name, s.At.pos), origin)
}

// lower names files. Envoy reads them again when something moves in their
// directory, as certificate tools and Kubernetes do.
func (n *nodeSecret) lower(name string) proto.Message {
	out := &tlsv3.Secret{Name: name}
	if n.CA != "" {
		out.Type = &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: onNode(n.CA), WatchedDirectory: watched(n.CA),
		}}
		return out
	}
	cert := &tlsv3.TlsCertificate{CertificateChain: onNode(n.Cert), PrivateKey: onNode(n.Key)}
	if path.Dir(n.Cert) == path.Dir(n.Key) { // else Envoy watches each file
		cert.WatchedDirectory = watched(n.Cert)
	}
	out.Type = &tlsv3.Secret_TlsCertificate{TlsCertificate: cert}
	return out
}

func onNode(file string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: file}}
}

func watched(file string) *corev3.WatchedDirectory {
	return &corev3.WatchedDirectory{Path: path.Dir(file)}
}

func secretNamed(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: ads()}
}

// lower makes the end of TLS at a port; it is nil without TLS.
func (t *listenerTLS) lower(protocol string) *corev3.TransportSocket {
	if t == nil {
		return nil
	}
	common := &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{secretNamed(t.Secret)},
		AlpnProtocols:                  t.ALPN, TlsParams: tlsParams(t.MinVersion),
	}
	if t.ALPN == nil {
		common.AlpnProtocols = alpnOf[protocol]
	}
	out := &tlsv3.DownstreamTlsContext{CommonTlsContext: common}
	if t.Client != nil {
		trust(common, t.Client.CA, t.Client.SANs)
		out.RequireClientCertificate = wrapperspb.Bool(!t.Client.Optional)
	}
	return &corev3.TransportSocket{Name: tlsName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(out)}}
}

// alpnOf are the protocols that a listener speaks, best first.
var alpnOf = map[string][]string{"http": {"h2", "http/1.1"}, "http1": {"http/1.1"}, "http2": {"h2"}}

// trust checks a peer's certificate against a secret's authorities, and for
// names if there are any.
func trust(common *tlsv3.CommonTlsContext, ca string, sans []string) {
	if len(sans) == 0 {
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{ValidationContextSdsSecretConfig: secretNamed(ca)}
		return
	}
	common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
		CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: sanMatchers(sans)},
			ValidationContextSdsSecretConfig: secretNamed(ca),
		},
	}
}

func tlsParams(minVersion string) *tlsv3.TlsParameters {
	switch minVersion {
	case "1.2":
		return &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2}
	case "1.3":
		return &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		}
	}
	return nil
}

// serverNameOf is the name that endpoints are asked for: the author's, or that
// of the name that is looked up.
func (t *serviceTLS) serverNameOf(s *service) string {
	if t.SNI != "" || s.DNS == "" {
		return t.SNI
	}
	host, _ := splitAddress(s.DNS)
	return host
}

// lower makes TLS to endpoints. A certificate is always checked for a name:
// Envoy by itself would take any that the authorities signed.
func (t *serviceTLS) lower(s *service) *corev3.TransportSocket {
	sni := t.serverNameOf(s)
	sans := t.SANs
	if len(sans) == 0 {
		sans = []string{sni}
	}
	common := &tlsv3.CommonTlsContext{TlsParams: tlsParams(t.MinVersion)}
	if t.CA != "" {
		trust(common, t.CA, sans)
	} else {
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: onNode(t.Trust), MatchTypedSubjectAltNames: sanMatchers(sans),
		}}
	}
	if t.Secret != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{secretNamed(t.Secret)}
	}
	if s.http2() {
		common.AlpnProtocols = []string{"h2"}
	}
	return &corev3.TransportSocket{
		Name:       tlsName,
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&tlsv3.UpstreamTlsContext{Sni: sni, CommonTlsContext: common})},
	}
}

// sanMatchers read names as URIs, IP addresses or DNS names; a star at the
// beginning is any text.
func sanMatchers(sans []string) []*tlsv3.SubjectAltNameMatcher {
	var out []*tlsv3.SubjectAltNameMatcher
	for _, san := range sans {
		m := &tlsv3.SubjectAltNameMatcher{SanType: tlsv3.SubjectAltNameMatcher_DNS, Matcher: stringExact(san)}
		if _, err := netip.ParseAddr(san); err == nil {
			m.SanType = tlsv3.SubjectAltNameMatcher_IP_ADDRESS
		} else if strings.Contains(san, "://") {
			m.SanType = tlsv3.SubjectAltNameMatcher_URI
		}
		if rest, ok := strings.CutPrefix(san, "*"); ok && rest != "" {
			m.Matcher = &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: rest}}
		}
		out = append(out, m)
	}
	return out
}
