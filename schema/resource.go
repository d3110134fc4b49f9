package schema

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"
)

// Key names a resource: its type and its name on the wire.
type Key struct {
	Type Type   `json:"type"`
	Name string `json:"name"`
}

func (k Key) String() string { return k.Type.String() + "/" + k.Name }

// Compare orders keys by type and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Type, o.Type), cmp.Compare(k.Name, o.Name))
}

// Version is the content hash of a resource or of a set of them: 16 lower-case
// hexadecimal digits, equal wherever and whenever it is computed. The empty
// version belongs to a resource whose body is live.
type Version string

// Edge says what a reference means for order.
type Edge uint8

const (
	// Traffic is carried along the reference: the target must be ready before.
	Traffic Edge = iota
	// Child is a part that comes with its parent: a cluster's endpoints, a
	// listener's route table.
	Child
	// Filter is a service that a filter, a log or a tracer calls.
	Filter
	// Optional may dangle: its author allowed it, or it names what the node's
	// bootstrap holds.
	Optional
)

func (e Edge) String() string {
	return [...]string{"traffic", "child", "filter", "optional"}[e]
}

// Ref is a reference from one resource to another.
type Ref struct {
	Key
	Edge Edge
}

// Resource is one named xDS message. It is made by NewResource or NewLive and
// never changed after.
type Resource struct {
	Key
	// Version is the hash of Body, or empty for the key of a live resource.
	Version Version
	// Refs are sorted and without duplicates.
	Refs []Ref
	// Body is the deterministic encoding of the google.protobuf.Any that goes
	// on the wire, encoded once.
	Body []byte
	// Usable is set on endpoints that some request could be sent to: a host
	// with a weight above 0 that is neither unhealthy nor draining (rule P14).
	Usable bool

	chunk    []byte // Body behind its tag and length
	priority uint64 // place in a Set's tree, from the name alone
	sum      Sum    // hash of name and version
	memory   Memory
}

// Derive computes something from the resource once, under a key: the sessions of
// a fleet hold few versions of a resource, and ask the same of each. Neither the
// key nor the value may hold on to another resource, such as the version before,
// or no version would ever be let go of: a key names one by a weak.Pointer. It is
// for one purpose alone, that of package planner.
func (r *Resource) Derive(key any, compute func() any) any { return r.memory.Derive(key, compute) }

// bodyTag is field 2, length-delimited: where DiscoveryResponse.resources and
// the delta Resource.resource both hold the Any.
const bodyTag = 2<<3 | 2

// Chunk is Body as a field of a response of either variant: tag, length, bytes.
// Callers share it and must not change it.
func (r *Resource) Chunk() []byte { return r.chunk }

// NewResource makes a resource whose version is the hash of body.
func NewResource(key Key, refs []Ref, body []byte) *Resource {
	h := sha256.Sum256(body)
	return Restore(key, Version(hex.EncodeToString(h[:8])), refs, body)
}

// NewLive makes the key of a resource whose body comes from the live overlay.
func NewLive(key Key) *Resource { return Restore(key, "", nil, nil) }

// Restore makes a resource of a version that was computed before, by this or by
// another replica: deterministic encodings are not canonical across versions of
// the encoder, so a stored version is never computed anew (rule H5).
func Restore(key Key, v Version, refs []Ref, body []byte) *Resource {
	key.Name = Canonical(key.Name)
	r := &Resource{Key: key, Version: v, Refs: canonicalRefs(refs)}
	if body != nil {
		r.chunk = append(binary.AppendUvarint([]byte{bodyTag}, uint64(len(body))), body...)
		r.Body = r.chunk[len(r.chunk)-len(body):]
	}
	n := sha256.Sum256([]byte(key.Name))
	r.priority = binary.LittleEndian.Uint64(n[:])
	h := sha256.New()
	h.Write(n[:])
	h.Write([]byte(v))
	var buf [sha256.Size]byte
	d := h.Sum(buf[:0])
	r.sum = Sum{binary.LittleEndian.Uint64(d), binary.LittleEndian.Uint64(d[8:])}
	return r
}

// Refers reports whether r, which may be nil, refers to a resource that must be
// there.
func (r *Resource) Refers(to Key) bool {
	if r == nil {
		return false
	}
	i, ok := slices.BinarySearchFunc(r.Refs, to, func(ref Ref, k Key) int { return ref.Compare(k) })
	return ok && r.Refs[i].Edge != Optional
}

// canonicalRefs brings references into their order, and to names that can be
// written in two ways into the one that names are compared in.
func canonicalRefs(refs []Ref) []Ref {
	same := func(r Ref) bool { return Canonical(r.Name) == r.Name }
	if slices.IsSortedFunc(refs, compareRefs) && !slices.ContainsFunc(refs, func(r Ref) bool { return !same(r) }) {
		return refs
	}
	refs = slices.Clone(refs)
	for i := range refs {
		refs[i].Name = Canonical(refs[i].Name)
	}
	slices.SortFunc(refs, compareRefs)
	return slices.Compact(refs)
}

// compareRefs puts, of several to one resource, the strictest first.
func compareRefs(a, b Ref) int { return cmp.Or(a.Compare(b.Key), cmp.Compare(a.Edge, b.Edge)) }

// Sum is a 128-bit hash of a set that does not depend on order: the sum of its
// elements' hashes. The zero Sum is that of the empty set.
type Sum struct{ lo, hi uint64 }

func (s Sum) plus(o Sum) Sum {
	lo, carry := bits.Add64(s.lo, o.lo, 0)
	hi, _ := bits.Add64(s.hi, o.hi, carry)
	return Sum{lo, hi}
}

// Version folds the sum to the 16 digits that go on the wire.
func (s Sum) Version() Version {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], s.lo^bits.RotateLeft64(s.hi, 32))
	return Version(hex.EncodeToString(b[:]))
}
