package compile

import (
	"context"
	"fmt"
	"path"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"

	"github.com/sluice-xds/sluice/schema"
)

// batchSize is how many packages share a cue.Context: enough to share the cost
// of the schema, few enough to give the memory back (rule C2).
const batchSize = 100

// pkg is one package, evaluated.
type pkg struct {
	pkgRef
	root *node // the known top-level fields; nil if the package is in error
	base bool  // only inherited from
	bad  schema.Diagnostics
	data bool // read as plain data: its own files, and those it inherits, are all it depends on

	said *said // what root says, once it was decoded
}

// said is a package as Go values. They are never changed, so that all trees that
// hold the package share them.
type said struct {
	config config
	bad    schema.Diagnostics
}

func (p *pkg) decoded() *said {
	if p.said == nil {
		p.said = &said{}
		p.said.bad = decode(p.root, &p.said.config)
	}
	return p.said
}

// eval evaluates all packages that the cache does not know. The result is in the
// order of the source's packages.
func eval(ctx context.Context, s *source, within bounds, cache *Cache) ([]pkg, error) {
	out := make([]pkg, len(s.pkgs))
	which := make([]int, len(s.pkgs))
	for i := range which {
		which[i] = i
	}
	if cache == nil {
		return out, evalSome(ctx, s, within, which, out)
	}
	cache.next()
	return out, evalCached(ctx, s, within, cache, which, out)
}

// evalCached evaluates those packages that the cache does not know.
func evalCached(ctx context.Context, s *source, within bounds, cache *Cache, which []int, out []pkg) error {
	missing, keys := cache.get(s, which, out)
	err := evalSome(ctx, s, within, missing, out)
	if err == nil {
		cache.put(keys, missing, out)
	}
	return err
}

// evalSome reads the packages that are plainly data, and has CUE evaluate the
// others.
func evalSome(ctx context.Context, s *source, within bounds, which []int, out []pkg) error {
	read := make([]bool, len(which))
	var wg sync.WaitGroup
	for part := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := part; i < len(which) && ctx.Err() == nil; i += runtime.GOMAXPROCS(0) {
				out[which[i]], read[i] = s.literal(s.pkgs[which[i]])
			}
		})
	}
	wg.Wait()
	var rest []int
	for i, at := range which {
		if !read[i] {
			rest = append(rest, at)
		}
	}
	return evalCUE(ctx, s, within, rest, out)
}

// evalCUE evaluates some packages, batch by batch, one worker for each core.
func evalCUE(ctx context.Context, s *source, within bounds, which []int, out []pkg) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if len(which) == 0 {
		return context.Cause(ctx)
	}
	starts := make(chan []int)
	var wg sync.WaitGroup
	var j *job
	if within.command != nil {
		j = s.jobOf(within)
	}
	for range min(runtime.GOMAXPROCS(0), (len(which)+batchSize-1)/batchSize) {
		wg.Go(func() {
			w := worker{bounds: within, job: j}
			defer w.end()
			for places := range starts {
				batch := make([]pkgRef, len(places))
				for i, at := range places {
					batch[i] = s.pkgs[at]
				}
				done := func(i int, p pkg) { out[places[i]] = p }
				if j == nil {
					evalBatch(ctx, s, batch, done)
				} else if err := w.evaluate(ctx, batch, done); err != nil {
					cancel(err)
				}
			}
		})
	}
	for batch := range slices.Chunk(which, batchSize) {
		starts <- batch
	}
	close(starts)
	wg.Wait()
	return context.Cause(ctx)
}

// evalBatch evaluates packages that share a cue.Context, and calls done for each.
func evalBatch(ctx context.Context, s *source, refs []pkgRef, done func(int, pkg)) {
	insts, schemaInst, err := s.instances(refs)
	cctx := cuecontext.New()
	for i, ref := range refs {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			done(i, pkg{pkgRef: ref, bad: cueDiagnostics(err, "load", schema.Pos{File: ref.file})})
		default:
			p := evalPackage(cctx, ref, insts[i], schemaInst)
			p.bad = s.readable(p.bad)
			done(i, p)
		}
	}
}

func evalPackage(cctx *cue.Context, ref pkgRef, inst, schemaInst *build.Instance) (p pkg) {
	p.pkgRef = ref
	defer func() {
		if r := recover(); r != nil {
			p.root = nil
			p.bad = schema.Diagnostics{{
				Pos: schema.Pos{File: ref.file}, Code: "internal",
				Message: fmt.Sprintf("CUE's evaluator failed on this package: %v", r),
			}}
		}
	}()
	e := evaluator{lines: linesOf(inst.Files), files: inst.Files, pkg: schema.Pos{File: ref.file}, schema: schemaInst}
	if p.bad = e.loaded(inst); len(p.bad) > 0 {
		return p
	}
	p.base = e.isBase(ref.dir)
	constrain(inst, schemaInst, e.lines)
	v := cctx.BuildInstance(inst)
	if err := v.Validate(cue.Concrete(!p.base), cue.Attributes(true), cue.Definitions(true), cue.Hidden(true)); err != nil {
		p.bad = together(unexplained(slices.Concat(e.translations(err), e.missing(v, nil), e.strays(e.lines, nil))))
	}
	p.bad = append(p.bad, e.unknown(v)...)
	if len(p.bad) > 0 {
		p.bad = p.bad.Sorted()
		return p
	}
	if !p.base {
		p.root = e.node(v, e.lines, schema.Pos{File: ref.file}, reflect.TypeFor[config](), true)
	}
	return p
}

// isBase reports whether the package's own directory says sluice: base: true.
// A package that inherits from it sees the field too, and is none. What a base
// leaves open is for those that inherit from it to set.
func (e *evaluator) isBase(dir string) bool {
	l := e.lines.kid("sluice").kid("base")
	return l != nil && l.isTrue && path.Dir(l.pos.File) == dir
}

// loaded is what was wrong with a package before it could be evaluated.
func (e *evaluator) loaded(inst *build.Instance) schema.Diagnostics {
	var ds schema.Diagnostics
	if inst.Err != nil {
		ds = together(e.translations(inst.Err))
		for i := range ds {
			if ds[i].Code == codeCUE {
				ds[i].Code = "syntax"
			}
		}
	}
	for _, f := range inst.IgnoredFiles {
		if f.ExcludeReason != nil && strings.Contains(f.ExcludeReason.Error(), "@if") {
			ds = append(ds, schema.Diagnostic{
				Pos: schema.Pos{File: f.Filename}, Code: "build-tag",
				Message: "the file has a build tag (@if), so nobody would see it", Hint: "use a directory for each environment",
			})
		}
	}
	return ds
}

// evaluator walks one package's value.
type evaluator struct {
	lines  *lines
	files  []*ast.File
	index  *index // of files, once an error asks
	pkg    schema.Pos
	schema *build.Instance
}

// unknown refuses regular top-level fields that are none of the vocabulary's:
// plain CUE would take a misspelt one in silence.
func (e *evaluator) unknown(v cue.Value) schema.Diagnostics {
	var ds schema.Diagnostics
	if e.lines.plain() {
		return nil
	}
	it, err := v.Fields()
	if err != nil {
		return nil // said before
	}
	for it.Next() {
		name := it.Selector().Unquoted()
		if _, ok := topLevel[name]; ok {
			continue
		}
		hint := inEntry(name)
		if other := otherWords[""][name]; other != "" {
			hint = fmt.Sprintf("did you mean %q?", other)
		} else if hint == "" || nearest(name, sortedKeys(topLevel)) != "" {
			hint = meant(name, sortedKeys(topLevel), "a helper begins with _ (hidden) or # (definition)")
		}
		ds = append(ds, schema.Diagnostic{
			Code: "unknown-field", Pos: e.pos(it.Value(), e.lines.kid(name), e.pkg),
			Message: fmt.Sprintf("%q is no field of a package", name),
			Hint:    hint,
		})
	}
	return ds
}

// plain reports whether all top-level fields are written as such, and known.
func (l *lines) plain() bool {
	if l.open {
		return false
	}
	for name := range l.kids {
		if _, ok := topLevel[name]; !ok {
			return false
		}
	}
	return true
}

// pos is where the author wrote a value: its own place if it is a scalar of
// theirs, else its label, else what the evaluator knows, else the parent.
func (e *evaluator) pos(v cue.Value, l *lines, parent schema.Pos) schema.Pos {
	own, ok := position(v.Pos())
	scalar := v.IncompleteKind()&(cue.StructKind|cue.ListKind) == 0
	switch {
	case scalar && ok && l != nil && own == l.pos && l.value.Line != 0:
		return l.value // the evaluator knows the field alone
	case scalar && ok:
		return own
	case l != nil && l.pos.Line != 0:
		return l.pos
	case ok:
		return own
	case scalar, l != nil:
		return parent // a default of the schema's, or the package itself
	}
	if op, parts := v.Expr(); op == cue.AndOp {
		for _, part := range parts {
			if p, ok := position(part.Pos()); ok {
				return p
			}
		}
	}
	return parent
}

// node copies a value out of CUE. Known says that the fields are those of l and
// the definition's defaults: CUE takes long to list them in their order.
func (e *evaluator) node(v cue.Value, l *lines, parent schema.Pos, t reflect.Type, known bool) *node {
	v, _ = v.Default()
	n := &node{kind: v.Kind(), pos: e.pos(v, l, parent)}
	known = known && l != nil && !l.open
	switch n.kind {
	case cue.StructKind:
		e.fields(n, v, l, t, known)
	case cue.ListKind:
		it, err := v.List()
		if err != nil {
			break
		}
		for i := 0; it.Next(); i++ {
			n.elems = append(n.elems, e.node(it.Value(), l.kid(strconv.Itoa(i)), n.pos, elemType(t), known))
		}
	case cue.StringKind:
		n.text, _ = v.String()
	default:
		text, err := v.MarshalJSON()
		if err != nil {
			break
		}
		n.text = string(text)
		if n.kind == cue.BytesKind {
			n.kind, n.text = cue.StringKind, strings.Trim(n.text, `"`)
		}
	}
	return n
}

// fields copies a struct's fields, sorted: their order means nothing (rule C4).
func (e *evaluator) fields(n *node, v cue.Value, l *lines, t reflect.Type, known bool) {
	add := func(name string, v cue.Value) {
		n.fields = append(n.fields, field{name, e.node(v, l.kid(name), n.pos, fieldType(t, name), known)})
	}
	if known {
		for name := range l.kids {
			if f := v.LookupPath(cue.MakePath(cue.Str(name))); f.Exists() {
				add(name, f)
			}
		}
		for _, name := range defaults[t] {
			if f := v.LookupPath(cue.MakePath(cue.Str(name))); l.kids[name] == nil && f.Exists() {
				add(name, f)
			}
		}
	} else if it, err := v.Fields(); err == nil { // validated before
		for it.Next() {
			add(it.Selector().Unquoted(), it.Value())
		}
	}
	slices.SortFunc(n.fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
}

// defaults are the fields to which the schema gives a value where the author does
// not. A test holds the list against the schema.
var defaults = map[reflect.Type][]string{
	reflect.TypeFor[listener]():   {"protocol"},
	reflect.TypeFor[accessLog]():  {"path"},
	reflect.TypeFor[redirect]():   {"status"},
	reflect.TypeFor[service]():    {"protocol", "lb"},
	reflect.TypeFor[serviceTLS](): {"trust"},
	reflect.TypeFor[request]():    {"method"},
}

// elemType and fieldType lead down the surface; nil is what it does not know, as
// Envoy's own words.
func elemType(t reflect.Type) reflect.Type {
	if t = pointed(t); t == nil || t.Kind() != reflect.Slice {
		return nil
	}
	return pointed(t.Elem())
}

func fieldType(t reflect.Type, name string) reflect.Type {
	if t = pointed(t); t == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Map:
		return pointed(t.Elem())
	case reflect.Struct:
		if i, ok := fieldsOfType(t)[name]; ok {
			return pointed(t.Field(i).Type)
		}
	}
	return nil
}

func pointed(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
