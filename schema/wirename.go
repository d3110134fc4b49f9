package schema

import "strings"

// renameMark parts the stable name of a service from the hash of what it is made
// into, in the name of a cluster that is renamed at each change. A hash has
// renameDigits lower-case hexadecimal digits.
const (
	renameMark   = "~"
	renameDigits = 8
)

// WireName is the name of a cluster that is renamed when hash changes (rule P4).
func WireName(stable string, hash Version) string {
	return stable + renameMark + string(hash[:renameDigits])
}

// StableName is the name that an author gave to what is called name on the wire.
func StableName(name string) string {
	at := strings.LastIndex(name, renameMark)
	if at < 0 {
		return name
	}
	hash := name[at+len(renameMark):]
	if len(hash) != renameDigits || strings.Trim(hash, "0123456789abcdef") != "" {
		return name
	}
	return name[:at]
}
