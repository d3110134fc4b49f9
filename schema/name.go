package schema

import (
	"slices"
	"strings"
)

// xdstp begins the names of the xDS transport's own scheme:
// xdstp://authority/type/path?parameters.
const xdstp = "xdstp:"

// Canonical is a name in the form in which names are compared: an xdstp name
// has its context parameters sorted by key (rule D13). Others are themselves.
func Canonical(name string) string {
	if !strings.HasPrefix(name, xdstp) {
		return name
	}
	path, query, found := strings.Cut(name, "?")
	if !found {
		return name
	}
	query, directives, _ := strings.Cut(query, "#")
	params := strings.Split(query, "&")
	if slices.IsSorted(params) {
		return name
	}
	slices.Sort(params)
	name = path + "?" + strings.Join(params, "&")
	if directives != "" {
		name += "#" + directives
	}
	return name
}

// IsGlob reports whether a canonical name stands for a collection: an xdstp name
// whose path ends in "/*".
func IsGlob(name string) bool {
	if !strings.HasPrefix(name, xdstp) {
		return false
	}
	path, _, _ := strings.Cut(name, "?")
	return strings.HasSuffix(path, "/*")
}

// GlobOf names the collection that a canonical name is a member of, with the
// same context parameters; it is empty for a name that is in none.
func GlobOf(name string) string {
	if !strings.HasPrefix(name, xdstp) {
		return ""
	}
	path, query, found := strings.Cut(name, "?")
	i := strings.LastIndexByte(path, '/')
	if i <= len(xdstp) || path[i-1] == '/' { // the slashes before the authority
		return ""
	}
	glob := path[:i] + "/*"
	if found {
		glob += "?" + query
	}
	return glob
}
