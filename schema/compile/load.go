package compile

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
	"cuelang.org/go/mod/modfile"

	"github.com/sluice-xds/sluice/schema"
)

// source is a tree that is ready to be loaded, and the packages that it holds.
type source struct {
	tree   *memFS
	module string // directory of cue.mod, or "."
	schema string // directory of the schema's package
	pkgs   []pkgRef

	registry map[string]string // module -> directory, all that can be imported
	vendored map[string]string

	plain  bool                  // the module's language is one that literal reads
	embeds bool                  // some CUE file takes in files that are none
	byDir  map[string][]*cueFile // the files that take part in packages, by name
}

// cueFile is a file that takes part in packages.
type cueFile struct {
	path string
	pkg  string // "" if it does not plainly say

	once    sync.Once
	literal bool // see isLiteral
}

// pkgRef names one package: one unit of evaluation.
type pkgRef struct {
	dir, name string
	file      string // one of its files, for what concerns the whole
}

// loadTree reads the tree, mounts the schema in it and lists the packages at
// and below dir.
func loadTree(src fs.FS, dir string, limits Limits) (*source, schema.Diagnostics) {
	dir = path.Clean(dir)
	if !fs.ValidPath(dir) {
		return nil, schema.Diagnostics{{
			Pos: schema.Pos{File: dir}, Code: "path",
			Message: "is no path below the root of the repository",
		}}
	}
	if info, err := fs.Stat(src, dir); err != nil || !info.IsDir() {
		return nil, schema.Diagnostics{{
			Pos: schema.Pos{File: dir}, Code: "path",
			Message: "there is no such directory in the repository",
		}}
	}
	tree, ds := readTree(src, dir, limits.orDefault())
	s := &source{tree: tree, module: moduleRoot(tree, dir), registry: map[string]string{}}
	if bad := s.mountSchema(); len(bad) > 0 {
		return nil, append(ds, bad...)
	}
	tree.seal()
	s.index()
	ds = append(ds, s.list(dir)...)
	return s, ds
}

// moduleRoot is the nearest directory at or above dir that has a module file.
func moduleRoot(tree *memFS, dir string) string {
	for {
		if _, ok := tree.files[path.Join(dir, "cue.mod/module.cue")]; ok || dir == "." {
			return dir
		}
		dir = path.Dir(dir)
	}
}

// replaced reports whether a file would stand in for the embedded schema or for
// a module: a vendored copy, or replacements, which may lead out of the tree.
func (s *source) replaced(p string) bool {
	for _, sub := range []string{"pkg", "gen", "usr"} {
		if within(p, path.Join(s.module, "cue.mod", sub, "github.com/sluice-xds/sluice")) {
			return true
		}
	}
	return path.Base(p) == "local-module.cue" && path.Base(path.Dir(p)) == "cue.mod"
}

// mountSchema puts the embedded schema into the tree, as a module that the
// author's module depends on.
func (s *source) mountSchema() schema.Diagnostics {
	s.tree.dropFunc(s.replaced)
	modPath := path.Join(s.module, "cue.mod/module.cue")
	mod := &modfile.File{Module: "repository.sluice@v0", Language: &modfile.Language{Version: languageLevel}}
	if f := s.tree.files[modPath]; f != nil {
		var err error
		if mod, err = modfile.ParseNonStrict(f.data, modPath); err != nil {
			return cueDiagnostics(err, "module-file", schema.Pos{File: modPath})
		}
	}
	s.plain = mod.Language != nil && plainModule(mod.Language.Version)
	deps := map[string]*modfile.Dep{}
	s.schema = path.Join(mount, "schema")
	if mod.QualifiedModule() == schema.ModulePath {
		// The repository of sluice itself: its schema is the embedded one.
		s.schema = path.Join(s.module, "schema")
		s.tree.dropFunc(func(p string) bool { return path.Dir(p) == s.schema })
	} else {
		deps[schema.ModulePath] = &modfile.Dep{Version: schemaVersion}
		s.registry[schema.ModulePath] = mount
		s.tree.put(path.Join(mount, "cue.mod/module.cue"), moduleFile(schema.ModulePath))
	}
	if bad := s.mountVendored(deps); len(bad) > 0 {
		return bad
	}
	mod.Deps = deps
	data, err := modfile.Format(mod)
	if err != nil {
		return cueDiagnostics(err, "module-file", schema.Pos{File: modPath})
	}
	s.tree.put(modPath, data)
	files, err := fs.Glob(schema.CUE, "*.cue")
	for _, name := range files {
		if data, err = schema.CUE.ReadFile(name); err != nil {
			break
		}
		s.tree.put(path.Join(s.schema, name), data)
	}
	if err != nil {
		return schema.Diagnostics{{Pos: schema.Pos{File: "."}, Code: "internal", Message: err.Error()}}
	}
	return nil
}

// list finds the packages at and below dir, in order. Plain cue passes over
// what it does not understand; here nothing is left out in silence.
func (s *source) list(dir string) schema.Diagnostics {
	var ds schema.Diagnostics
	seen := map[pkgRef]bool{}
	modules := map[string]bool{}
	for _, p := range sortedKeys(s.tree.files) {
		base, in := path.Base(p), path.Dir(p)
		if nested := s.nested(in); nested != "" && within(in, dir) && !modules[nested] && !s.internal(in) {
			modules[nested] = true
			ds = append(ds, schema.Diagnostic{
				Pos:      schema.Pos{File: path.Join(nested, "cue.mod/module.cue")},
				Severity: schema.Warning, Code: "nested-module", Message: "is another module: what it holds is not read",
			})
		}
		if !takesPart(base) || !within(in, dir) || s.foreign(in) {
			continue
		}
		name, plain := packageClause(s.tree.files[p].data)
		if !plain {
			f, err := parser.ParseFile(p, s.tree.files[p].data, parser.PackageClauseOnly)
			if err != nil {
				ds = append(ds, cueDiagnostics(err, "syntax", schema.Pos{File: p})...)
				continue
			}
			name = f.PackageName()
		}
		if name == "" || name == "_" {
			hint := fmt.Sprintf("begin it with: package %s", suggestPackage(in))
			if lateClause.Match(s.tree.files[p].data) {
				hint = "put the package clause first, above the imports"
			}
			ds = append(ds, schema.Diagnostic{
				Pos: schema.Pos{File: p, Line: 1, Col: 1}, Code: "no-package",
				Message: "the file has no package clause, so no package holds what it says", Hint: hint,
			})
			continue
		}
		if key := (pkgRef{dir: in, name: name}); !seen[key] {
			seen[key] = true
			key.file = p
			s.pkgs = append(s.pkgs, key)
		}
	}
	return s.readable(ds)
}

var lateClause = regexp.MustCompile(`(?m)^package [a-z]`)

// takesPart reports whether a file is part of a package, by its name.
func takesPart(base string) bool {
	return strings.HasSuffix(base, ".cue") && !strings.HasPrefix(base, ".") && !strings.HasPrefix(base, "_") &&
		!strings.HasSuffix(base, "_tool.cue") && !strings.HasSuffix(base, "_test.cue")
}

// index notes which packages the files of each directory are part of.
func (s *source) index() {
	s.byDir = map[string][]*cueFile{}
	for p, f := range s.tree.files {
		s.embeds = s.embeds || bytes.Contains(f.data, []byte("@embed"))
		if takesPart(f.name) {
			pkg, _ := packageClause(f.data)
			dir := path.Dir(p)
			s.byDir[dir] = append(s.byDir[dir], &cueFile{path: p, pkg: pkg})
		}
	}
	for _, files := range s.byDir {
		slices.SortFunc(files, func(a, b *cueFile) int { return strings.Compare(a.path, b.path) })
	}
}

// internal reports whether a directory is the loader's own or a vendored one.
func (s *source) internal(dir string) bool {
	return within(dir, ".sluice") || within(dir, path.Join(s.module, "cue.mod"))
}

// foreign reports whether a directory is none of the module's own: the schema,
// what is vendored, another module, or what cue passes over.
func (s *source) foreign(dir string) bool {
	if dir == s.schema || s.internal(dir) || s.nested(dir) != "" {
		return true
	}
	for d := dir; d != s.module && d != "."; d = path.Dir(d) {
		base := path.Base(d)
		if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
			return true
		}
	}
	return false
}

// nested is the root of another module that a directory is part of, or "".
func (s *source) nested(dir string) string {
	for d := dir; d != s.module && d != "."; d = path.Dir(d) {
		if _, ok := s.tree.files[path.Join(d, "cue.mod/module.cue")]; ok {
			return d
		}
	}
	return ""
}

func suggestPackage(dir string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, path.Base(dir))
	if name == "" || name[0] <= '9' {
		return "config"
	}
	return name
}

// instances loads one batch of packages. The result has one instance for each,
// in the same order, and that of the schema.
func (s *source) instances(batch []pkgRef) ([]*build.Instance, *build.Instance, error) {
	args := make([]string, len(batch), len(batch)+1)
	for i, p := range batch {
		rel := strings.TrimPrefix(strings.TrimPrefix(p.dir, s.module), "/")
		if s.module == "." {
			rel = p.dir
		}
		args[i] = "./" + path.Clean(rel) + ":" + p.name
		if rel == "." || rel == "" {
			args[i] = ".:" + p.name
		}
	}
	root := path.Join("/", s.module)
	insts := load.Instances(append(args, schemaImport), &load.Config{
		FS:         s.tree,
		FromFSPath: s.display,
		Dir:        root,
		ModuleRoot: root,
		Registry:   registry{s.tree, s.registry},
		Env:        []string{},
	})
	if len(insts) != len(batch)+1 {
		for _, inst := range insts {
			if inst.Err != nil {
				return nil, nil, inst.Err
			}
		}
		return nil, nil, errors.New("the loader lost packages")
	}
	return insts[:len(batch)], insts[len(batch)], nil
}

// constraints unify a package's entries with their definitions, as if the
// author had written them: so that an entry has its definition even where they
// left it out. A definition of the whole, embedded, would lose closedness.
var constraints = map[string]string{
	"groups": "[string]: sluiceschema.#Group", "listeners": "[string]: sluiceschema.#Listener",
	"routes": "[string]: sluiceschema.#Routes", "services": "[string]: sluiceschema.#Service",
	"secrets": "[string]: sluiceschema.#Secret", "resources": "sluiceschema.#Resources",
	"patches": "sluiceschema.#Patches", "tests": "[string]: sluiceschema.#Test", "sluice": "sluiceschema.#Settings",
}

// constrain adds the constraints to a package that are not in it word for word:
// to unify a definition twice takes twice as long.
func constrain(inst, schemaInst *build.Instance, l *lines) {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\nimport sluiceschema %q\n", inst.PkgName, schemaImport)
	any := false
	for name, def := range sorted(constraints) {
		if l.open || l.kid(name).lacks(def) {
			fmt.Fprintf(&b, "%s?: %s\n", name, def)
			any = true
		}
	}
	if !any {
		return
	}
	file, err := parser.ParseFile(mount+"/constraints.cue", b.String())
	if err != nil {
		inst.ReportError(errors.Promote(err, "constraints"))
		return
	}
	if inst.LookupImport(schemaImport) == nil {
		inst.Imports = append(inst.Imports, schemaInst)
	}
	if err := inst.AddSyntax(file); err != nil {
		inst.ReportError(err)
	}
}

// lacks reports whether a top-level field, or an entry of it, has not its
// definition in its author's own words.
func (l *lines) lacks(def string) bool {
	if l == nil {
		return false // nothing writes the field
	}
	each, ok := strings.CutPrefix(def, "[string]: sluiceschema.")
	if !ok {
		return l.of != strings.TrimPrefix(def, "sluiceschema.")
	}
	if l.open || len(l.kids) == 0 {
		return true
	}
	for _, k := range l.kids {
		if k.of != each {
			return true
		}
	}
	return false
}

// position translates a position to the author's; ok is false for one that
// stands in the schema.
func position(p token.Pos) (pos schema.Pos, ok bool) {
	if !p.IsValid() {
		return schema.Pos{}, false
	}
	f := p.Position()
	name := strings.TrimPrefix(f.Filename, "/")
	if name == "" || within(name, mount) {
		return schema.Pos{}, false
	}
	return schema.Pos{File: name, Line: f.Line, Col: f.Column}, true
}
