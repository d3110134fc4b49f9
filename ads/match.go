package ads

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/sluice-xds/sluice/schema"
)

// nodeMatchers selects the nodes that any of the matchers accepts; without any,
// all. A matcher accepts what all of its parts do.
func nodeMatchers(ms []*matcherv3.NodeMatcher) (func(*schema.Node) bool, error) {
	var any []func(*schema.Node) bool
	for _, m := range ms {
		var all []func(*schema.Node) bool
		if m.GetNodeId() != nil {
			ok, err := stringMatcher(m.GetNodeId())
			if err != nil {
				return nil, fmt.Errorf("node_id: %w", err)
			}
			all = append(all, func(n *schema.Node) bool { return ok(n.ID) })
		}
		for _, md := range m.GetNodeMetadatas() {
			ok, err := metadataMatcher(md)
			if err != nil {
				return nil, fmt.Errorf("node_metadatas: %w", err)
			}
			all = append(all, ok)
		}
		any = append(any, func(n *schema.Node) bool {
			for _, ok := range all {
				if !ok(n) {
					return false
				}
			}
			return true
		})
	}
	return func(n *schema.Node) bool {
		for _, ok := range any {
			if ok(n) {
				return true
			}
		}
		return len(any) == 0
	}, nil
}

// metadataMatcher matches one string of a node's metadata: no other values are
// kept, and none that are nested.
func metadataMatcher(m *matcherv3.StructMatcher) (func(*schema.Node) bool, error) {
	if len(m.GetPath()) != 1 || m.GetPath()[0].GetKey() == "" {
		return nil, errors.New("the path must be one key: nested metadata is not kept")
	}
	key := m.GetPath()[0].GetKey()
	switch v := m.GetValue().GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		ok, err := stringMatcher(v.StringMatch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		return func(n *schema.Node) bool {
			s, has := n.Metadata[key]
			return has && ok(s)
		}, nil
	case *matcherv3.ValueMatcher_PresentMatch:
		return func(n *schema.Node) bool {
			_, has := n.Metadata[key]
			return has == v.PresentMatch
		}, nil
	}
	return nil, fmt.Errorf("%s: only string_match and present_match are supported: of metadata, strings are kept", key)
}

func stringMatcher(m *matcherv3.StringMatcher) (func(string) bool, error) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	by := func(test func(s, part string) bool, part string) (func(string) bool, error) {
		part = fold(part)
		return func(s string) bool { return test(fold(s), part) }, nil
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return by(func(s, part string) bool { return s == part }, p.Exact)
	case *matcherv3.StringMatcher_Prefix:
		return by(strings.HasPrefix, p.Prefix)
	case *matcherv3.StringMatcher_Suffix:
		return by(strings.HasSuffix, p.Suffix)
	case *matcherv3.StringMatcher_Contains:
		return by(strings.Contains, p.Contains)
	case *matcherv3.StringMatcher_SafeRegex:
		re, err := regexp.Compile(`^(?:` + p.SafeRegex.GetRegex() + `)$`)
		if err != nil {
			return nil, err
		}
		return re.MatchString, nil
	}
	return nil, errors.New("a string matcher needs exact, prefix, suffix, contains or safe_regex")
}
