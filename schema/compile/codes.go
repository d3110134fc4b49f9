package compile

import (
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// Code is a kind of diagnostic. Its page is docs/checks/<name>.md.
type Code struct {
	Name     string
	Severity schema.Severity // the usual one
	// Allow is set if an entry may allow it, with a reason.
	Allow bool
	// Meaning is one line: what is wrong.
	Meaning string
}

// Codes lists all kinds of diagnostics that this package reports, by name.
func Codes() []Code { return slices.Clone(codes) }

const (
	isError   = schema.Error
	isWarning = schema.Warning
)

var codes = []Code{
	{"address", isError, false, "An address is no IP address, or has no port that exists."},
	{"build-tag", isError, false, "A file has a build tag (@if), so nobody would see it."},
	{"client-mismatch", isError, false, "A listener does not fit the group's kind of client: proxies bind ports, gRPC processes dial and serve."},
	{"conflict", isError, false, "A field has two values that contradict each other."},
	{"cue", isError, false, "CUE refuses the configuration; the message is CUE's own."},
	{"cycle", isError, false, "Groups wait for each other, or services fall over to each other, in a circle."},
	{"dangling", isError, true, "A name refers to what does not exist."},
	{"deprecated-field", isWarning, true, "A resource or patch uses a field that Envoy has deprecated."},
	{"duplicate-endpoint", isError, true, "A service lists one address twice, which gRPC clients refuse."},
	{"duplicate-host", isError, false, "Two routes entries claim one host of a listener and do not say which comes first."},
	{"duplicate-name", isError, false, "Two entries of one kind have the same name."},
	{"duplicate-target", isError, false, "Two listeners of a group have the same target."},
	{"empty", isError, false, "A list is empty, so that the entry would do nothing."},
	{"envoy", isError, true, "Envoy would refuse the message: an unknown field or type, or a value out of its rules."},
	{"evaluation-limit", isError, false, "A package needs more time or memory to evaluate than it may have."},
	{"group-overlap", isError, false, "Two groups match the same nodes with the same priority."},
	{"grpc-action", isError, true, "A gRPC client gets a rule that answers by itself, which it cannot do."},
	{"grpc-cluster", isError, true, "A gRPC client gets a cluster of a type that it refuses."},
	{"grpc-host", isError, false, "No host of the routes on a gRPC target matches it, so that every call would fail."},
	{"grpc-ignored", isError, true, "A gRPC client would pass over the field in silence."},
	{"grpc-lb", isError, true, "A gRPC client gets a load balancer that it refuses."},
	{"grpc-match", isError, true, "A gRPC client cannot match this, so the rule would never take a call."},
	{"grpc-mirror", isError, true, "gRPC clients do not mirror calls."},
	{"grpc-retry", isError, true, "gRPC clients do not know this condition or limit of retries."},
	{"grpc-tls", isError, true, "gRPC clients take their TLS from their own bootstrap, not from a service."},
	{"host", isError, false, "A host is no host name, or one that could never match."},
	{"import", isError, false, "An import leads to nothing in this repository."},
	{"incomplete", isError, false, "A field has no value, only a constraint."},
	{"inherited-twice", isError, false, "A package serves what its ancestor directory, or another package below that, serves too."},
	{"initial-fetch-timeout", isWarning, true, "A node would wait for ever for a resource that may never come."},
	{"internal", isError, false, "sluice or CUE's evaluator failed; please report it."},
	{"irregular-file", isError, false, "A symbolic link, a submodule or a special file stands where configuration is read."},
	{"load", isError, false, "CUE cannot load the package."},
	{"missing-field", isError, false, "A required field is absent."},
	{"module-file", isError, false, "cue.mod/module.cue is not valid."},
	{"nested-module", isWarning, false, "A directory is a CUE module of its own, so it is not read."},
	{"newer-field", isWarning, true, "A resource uses what the oldest Envoy of the group does not know."},
	{"no-effect", isWarning, true, "A field has no effect where it stands."},
	{"no-package", isError, false, "A CUE file has no package clause, so no package holds what it says."},
	{"no-routes", isWarning, true, "No routes name a listener: every request ends in a 404."},
	{"one-of", isError, false, "A struct needs exactly one of some fields, and has none or several."},
	{"patch", isError, false, "A patch does not fit what it is merged onto."},
	{"path", isError, false, "The path to compile is no directory of the repository."},
	{"port-clash", isError, false, "Two listeners of a group want the same port."},
	{"priority-gap", isError, false, "The priorities of a service's endpoints have a gap, which clients refuse."},
	{"protocol-mismatch", isError, false, "HTTP and TCP, or HTTP and gRPC, are mixed up."},
	{"range", isError, false, "A number or a time is out of its range."},
	{"raw-name", isError, false, "A resource has another name inside than its key."},
	{"read", isError, false, "A file of the repository cannot be read."},
	{"reference", isError, false, "CUE finds no such name or definition."},
	{"regex", isError, false, "A regular expression, or what replaces its match, is not valid."},
	{"reserved-header", isError, false, "The header belongs to sluice's own warm routes."},
	{"reserved-name", isError, false, "The name is one of those that sluice gives to clusters when it renames them."},
	{"shadowed-route", isWarning, true, "A rule is never reached, because one of another entry with the same host takes all that it matches."},
	{"syntax", isError, false, "The file is not valid CUE."},
	{"too-large", isError, false, "The repository, or a file of it, is larger than what is read."},
	{"unknown-code", isError, false, "An allow names no check that can be allowed."},
	{"unknown-field", isError, false, "A field does not exist there; often it is misspelt."},
	{"unproven", isWarning, true, "What the resource refers to is known to a running proxy alone, so no plan can prove it."},
	{"unreachable-route", isError, true, "A rule is never reached, because one before it takes all that it matches."},
	{"unsupported", isError, true, "A known word that this version of sluice cannot serve yet."},
	{"unused-resource", isWarning, true, "A resource is in no group."},
	{"unused-service", isWarning, true, "No route of any group leads to the service."},
	{"value", isError, false, "A field has a value that it cannot have."},
	{"vendor", isError, false, "What is vendored under cue.mod cannot be used."},
	{"weights-zero", isError, false, "The weights of a split sum to zero."},
}

// allowable are the codes that an entry may allow: those of checks, and those of
// hazards that only a plan can find.
var allowable = func() []string {
	var names []string
	for _, c := range codes {
		if c.Allow {
			names = append(names, c.Name)
		}
	}
	names = append(names, hazardCodes()...)
	slices.Sort(names)
	return slices.Compact(names)
}()
