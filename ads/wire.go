package ads

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that this one falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-xds/sluice/schema"
)

// Codec encodes responses without copying their resources and scans requests in
// place. Every other message goes to gRPC's own proto codec.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*response); ok {
		return r.slices(), nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(*request); ok {
		r.free()
		r.buf = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return r.scan(r.buf.ReadOnlyData())
	}
	return c.CodecV2.Unmarshal(data, v)
}

// variant is one of the two forms of the protocol.
type variant struct{ request, response fields }

// fields are the numbers of a variant's messages, from discovery.proto. Zero is
// a field that the message lacks.
type fields struct {
	version, node, names, drop, typeURL, nonce, refusal, initial, removed protowire.Number
}

var (
	sotw = &variant{
		request:  fields{version: 1, node: 2, names: 3, typeURL: 4, nonce: 5, refusal: 6},
		response: fields{version: 1, typeURL: 4, nonce: 5},
	}
	delta = &variant{
		request:  fields{node: 1, typeURL: 2, names: 3, drop: 4, initial: 5, nonce: 6, refusal: 7},
		response: fields{version: 1, typeURL: 4, nonce: 5, removed: 6},
	}
)

// Fields of google.rpc.Status, of a map's entry and of a delta Resource.
const (
	statusCode      = 1
	statusMessage   = 2
	entryKey        = 1
	entryValue      = 2
	resourceVersion = 1
	resourceName    = 3
	resourceAliases = 4
	resourceTTL     = 6
	resourceList    = 2 // of a response
)

// request is a request of either variant, scanned. It is reused from one message
// of a stream to the next; names point into the message.
type request struct {
	of      *variant
	buf     mem.Buffer // what names point into
	list    *[][]byte  // room for names, from lists
	version string
	node    *schema.Node // nil when the message has none
	can     features     // of the node
	names   [][]byte     // in wire order; of a delta request, those to add
	drop    [][]byte     // those that a delta request takes away
	initial [][2][]byte  // name and version of what a delta client holds
	digest  digest       // of the names, in any order
	holds   digest       // of initial, in any order
	typeURL string
	nonce   []byte
	refusal *schema.Nack // code and words, when error_detail is set
}

// free gives the message back. What points into it is gone then.
func (r *request) free() {
	if r.buf != nil {
		r.buf.Free()
		r.buf = nil
	}
	clear(r.drop)
	clear(r.initial)
	if r.list != nil {
		clear(r.names)
		*r.list = r.names[:0]
		lists.Put(r.list)
		r.names, r.list = nil, nil
	}
}

// lists holds room for names, between requests: a stream that says nothing keeps
// none of it.
var lists = sync.Pool{New: func() any { return new([][]byte) }}

func (r *request) scan(b []byte) error {
	if r.list == nil {
		r.list = lists.Get().(*[][]byte)
	}
	*r = request{of: r.of, buf: r.buf, list: r.list, names: (*r.list)[:0], drop: r.drop[:0], initial: r.initial[:0]}
	err := eachField(b, r.field)
	r.digest = digestOf(r.names)
	return err
}

func (r *request) field(num protowire.Number, v []byte, _ uint64) error {
	if v == nil {
		return nil // of another wire type than any field that is known
	}
	switch f := &r.of.request; num {
	case f.version:
		r.version = string(v)
	case f.node:
		n, can, err := readNode(v)
		r.node, r.can = n, can
		return err
	case f.names:
		r.names = append(r.names, canonical(v))
	case f.drop:
		r.drop = append(r.drop, canonical(v))
	case f.initial:
		return r.holding(v)
	case f.typeURL:
		if t, ok := schema.TypeOf(string(v)); ok {
			r.typeURL = t.URL() // without a copy
		} else {
			r.typeURL = string(v)
		}
	case f.nonce:
		r.nonce = v
	case f.refusal:
		r.refusal = &schema.Nack{}
		return eachField(v, func(num protowire.Number, v []byte, n uint64) error {
			switch num {
			case statusCode:
				r.refusal.Code = int32(n)
			case statusMessage:
				r.refusal.Words = string(v)
			}
			return nil
		})
	}
	return nil
}

var xdstp = []byte("xdstp:")

// canonical is a name as names are compared; most are as they came (rule D13).
func canonical(name []byte) []byte {
	if !bytes.HasPrefix(name, xdstp) {
		return name
	}
	return []byte(schema.Canonical(string(name)))
}

// holding reads one entry of initial_resource_versions.
func (r *request) holding(b []byte) error {
	var e [2][]byte
	err := eachField(b, func(num protowire.Number, v []byte, _ uint64) error {
		switch {
		case v == nil:
		case num == entryKey:
			e[0] = canonical(v)
		case num == entryValue:
			e[1] = v
		}
		return nil
	})
	r.initial = append(r.initial, e)
	d := digestOf(e[:1])
	v := digestOf(e[1:])
	// The halves are mixed unevenly, so that a version counts with its name.
	r.holds = r.holds.plus(digest{d.a * (v.a | 1), d.b * (v.b | 1)})
	return err
}

// eachField calls f with the number and the bytes, or the value, of each field.
func eachField(b []byte, f func(num protowire.Number, v []byte, n uint64) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("cannot read the request: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var v []byte
		var x uint64
		switch typ {
		case protowire.BytesType:
			v, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			x, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return fmt.Errorf("cannot read the request: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if err := f(num, v, x); err != nil {
			return err
		}
	}
	return nil
}

// digest is a hash of a set of names that does not depend on their order. Its
// seeds are drawn anew in each process, so that nobody can make two sets meet.
type digest struct{ a, b uint64 }

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func digestOf(names [][]byte) digest {
	var d digest
	for _, n := range names {
		d.a += maphash.Bytes(seeds[0], n)
		d.b += maphash.Bytes(seeds[1], n)
	}
	return d
}

func (d digest) plus(o digest) digest  { return digest{d.a + o.a, d.b + o.b} }
func (d digest) minus(o digest) digest { return digest{d.a - o.a, d.b - o.b} }

// body is the part of a response that streams share: all but the nonce.
type body struct {
	content
	version schema.Version // of the subscription, once the response is applied
	chunks  mem.BufferSlice
	size    int
}

// content is what a response says.
type content struct {
	of     *variant
	t      schema.Type
	want   schema.Set // what the client is to hold once it is applied
	label  string     // for people: a delta response's system version
	set    schema.Set // what it brings
	gone   []string   // names that a delta response removes, sorted
	ttl    time.Duration
	beat   bool      // a heartbeat, that changes nothing
	bodies bool      // of a heartbeat: it brings the bodies all the same
	hosts  *onDemand // of virtual hosts alone: such a response is no other stream's
}

func newBody(c content) *body {
	version := c.want.Version()
	label := string(version)
	if c.of == delta {
		label = c.label
	}
	head := appendString(nil, c.of.response.version, label)
	head = appendString(head, c.of.response.typeURL, c.t.URL())
	for _, name := range c.gone {
		head = appendString(head, c.of.response.removed, name)
	}
	b := &body{content: c, version: version, chunks: make(mem.BufferSlice, 0, 1+c.set.Len())}
	b.add(head)
	for r := range c.set.All() {
		switch {
		case c.of == delta:
			b.add(wrapper(r, &c))
			if c.brings() {
				b.add(r.Chunk())
			}
		case c.ttl > 0:
			b.add(b.wrapped(r))
		default:
			b.add(r.Chunk())
		}
	}
	if c.hosts != nil {
		for _, name := range c.hosts.unknown {
			b.add(c.hosts.nothing(name))
		}
	}
	return b
}

func (b *body) add(chunk []byte) {
	b.chunks = append(b.chunks, mem.SliceBuffer(chunk))
	b.size += len(chunk)
}

// wrapper is the head of a delta Resource, up to its body.
func wrapper(r *schema.Resource, c *content) []byte {
	ttl, aliases := appendTTL(nil, c.ttl), c.hosts.of(r)
	size := protowire.SizeTag(resourceName) + protowire.SizeBytes(len(r.Name)) +
		protowire.SizeTag(resourceVersion) + protowire.SizeBytes(len(r.Version)) + len(ttl)
	for _, a := range aliases {
		size += protowire.SizeTag(resourceAliases) + protowire.SizeBytes(len(a))
	}
	w := protowire.AppendTag(make([]byte, 0, size+8), resourceList, protowire.BytesType)
	if c.brings() {
		size += len(r.Chunk())
	}
	w = protowire.AppendVarint(w, uint64(size))
	w = appendString(w, resourceName, r.Name)
	for _, a := range aliases {
		w = appendString(w, resourceAliases, a)
	}
	w = append(w, ttl...)
	return appendString(w, resourceVersion, string(r.Version))
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

// response is a shared body and a trailer of the stream's own.
type response struct {
	body  *body
	nonce uint64
	room  [4]mem.Buffer // for what one resource is sent in
}

func (r *response) slices() mem.BufferSlice {
	out := mem.BufferSlice(r.room[:0])
	if n := len(r.body.chunks) + 1; n > len(r.room) {
		out = make(mem.BufferSlice, 0, n)
	}
	return append(append(out, r.body.chunks...), tail(r.nonce))
}

// tails are the first trailers of a stream: whatever the stream, they are alike.
var tails = func() (all [1 << 10]mem.Buffer) {
	for n := range all {
		all[n] = newTail(uint64(n))
	}
	return all
}()

// tail is the trailer with a nonce: a field that both variants number alike.
func tail(nonce uint64) mem.Buffer {
	if nonce < uint64(len(tails)) {
		return tails[nonce]
	}
	return newTail(nonce)
}

func newTail(nonce uint64) mem.Buffer {
	return mem.SliceBuffer(appendString(nil, sotw.response.nonce, formatNonce(nonce)))
}

// isNonce reports whether a client's nonce is n.
func isNonce(b []byte, n uint64) bool {
	var digits [20]byte
	return string(b) == string(strconv.AppendUint(digits[:0], n, 10))
}

func formatNonce(n uint64) string { return strconv.FormatUint(n, 10) }
