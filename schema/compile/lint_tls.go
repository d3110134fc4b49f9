package compile

import (
	"fmt"
	"path"

	"github.com/sluice-xds/sluice/schema"
)

// What is wrong with secrets and with what refers to them.

func (m *model) lintSecret(name string, s *secret) {
	what := quoted("secret", name)
	m.oneOf(s.At, what, "node", "file", "env")
	for _, field := range []string{"file", "env"} {
		if s.At.get(field) != nil {
			m.error(s.At.at(field), "unsupported", `keep it on the nodes for now: node: {cert: "…", key: "…"}`,
				"%s: a secret of the server is not supported yet", what)
		}
	}
	n := s.Node
	if n == nil {
		return
	}
	switch {
	case n.CA != "":
		m.oneOf(n.At, what+": node", "cert", "ca")
		if n.Key != "" {
			m.error(n.At.at("key"), "one-of", "", "%s: node: key is for cert", what)
		}
	case n.Cert == "" || n.Key == "":
		m.error(n.At.pos, "missing-field", `give both, or ca for authorities`, "%s: node: a certificate is cert and key", what)
	}
	for field, file := range map[string]string{"cert": n.Cert, "key": n.Key, "ca": n.CA} {
		if file != "" && !path.IsAbs(file) {
			m.error(n.At.at(field), "value", `such as "/etc/envoy/shop.crt"`, "%s: node.%s %q is no absolute path", what, field, file)
		}
	}
}

func (m *model) lintTLS(what string, s *service) {
	t := s.TLS
	if t == nil {
		return
	}
	if t.serverNameOf(s) == "" && len(t.SANs) == 0 {
		m.error(t.At.pos, "missing-field", `give sni or sans: tls: sni: "api.example.com"`,
			"%s.tls: there is no name to check certificates for", what)
	}
}

// resolveSecrets finds the secrets that TLS refers to, and wants each to be of
// the kind that is asked for.
func (m *model) resolveSecrets() {
	for name, l := range sorted(m.todo.listeners) {
		if t := l.TLS; t != nil {
			m.secretExists(t.At.at("secret"), quoted("listener", name), t.Secret, false)
			if t.Client != nil {
				m.secretExists(t.Client.At.at("ca"), quoted("listener", name), t.Client.CA, true)
			}
		}
	}
	for name, s := range sorted(m.todo.services) {
		if t := s.TLS; t != nil {
			m.secretExists(t.At.at("secret"), quoted("service", name), t.Secret, false)
			m.secretExists(t.At.at("ca"), quoted("service", name), t.CA, true)
		}
	}
}

func (m *model) secretExists(pos schema.Pos, what, name string, ca bool) {
	s := m.secrets[name]
	switch {
	case name == "":
	case s == nil:
		m.error(pos, "dangling", meant(name, sortedKeys(m.secrets), fmt.Sprintf("declare it: secrets: %q: node: {cert: \"…\", key: \"…\"}", name)),
			"%s refers to secret %q, which does not exist", what, name)
	case s.Node == nil: // said before
	case ca && s.Node.CA == "":
		m.error(pos, "value", "it is at "+s.At.pos.String(), "%s wants authorities, and secret %q holds a certificate with its key", what, name)
	case !ca && s.Node.CA != "":
		m.error(pos, "value", "it is at "+s.At.pos.String(), "%s wants a certificate with its key, and secret %q holds authorities", what, name)
	}
}
