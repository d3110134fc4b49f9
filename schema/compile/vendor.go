package compile

import (
	"path"
	"strings"

	"cuelang.org/go/mod/modfile"
	"cuelang.org/go/mod/module"

	"github.com/sluice-xds/sluice/schema"
)

const vendorMount = ".sluice/vendor"

// mountVendored turns what authors keep under cue.mod/pkg, gen and usr into
// modules of the registry: in a tree that is no disk, CUE's loader cannot follow
// the old layout. The topmost directory that holds CUE files is a module.
func (s *source) mountVendored(deps map[string]*modfile.Dep) schema.Diagnostics {
	var ds schema.Diagnostics
	s.vendored = map[string]string{} // mounted directory -> the author's
	for _, sub := range []string{"pkg", "gen", "usr"} {
		dir := path.Join(s.module, "cue.mod", sub)
		for _, root := range s.topmost(dir) {
			ip := strings.TrimPrefix(root, dir+"/")
			at := path.Join(vendorMount, ip)
			mod, err := module.NewVersion(ip+"@v0", schemaVersion)
			if err != nil {
				ds = append(ds, schema.Diagnostic{Pos: schema.Pos{File: root}, Code: "vendor", Message: "is no import path: " + err.Error()})
				continue
			}
			if other, ok := s.vendored[at]; ok {
				ds = append(ds, schema.Diagnostic{
					Pos: schema.Pos{File: root}, Code: "vendor",
					Message: "is vendored a second time, which is not supported", Hint: "the first is " + other,
				})
				continue
			}
			s.move(root, at)
			s.vendored[at] = root
			s.registry[mod.Path()] = at
			deps[mod.Path()] = &modfile.Dep{Version: schemaVersion}
			s.tree.put(path.Join(at, "cue.mod/module.cue"), moduleFile(mod.Path()))
		}
	}
	return ds
}

// topmost lists the directories below dir that hold CUE files and are below no
// other such.
func (s *source) topmost(dir string) []string {
	var out []string
	holds := map[string]bool{}
	for p := range s.tree.files {
		if d := path.Dir(p); d != dir && within(d, dir) && strings.HasSuffix(p, ".cue") && path.Base(d) != "cue.mod" {
			holds[d] = true
		}
	}
next:
	for _, d := range sortedKeys(holds) {
		for up := path.Dir(d); within(up, dir) && up != "."; up = path.Dir(up) {
			if holds[up] {
				continue next
			}
		}
		out = append(out, d)
	}
	return out
}

func (s *source) move(from, to string) {
	for _, p := range sortedKeys(s.tree.files) {
		if within(p, from) {
			s.tree.files[to+strings.TrimPrefix(p, from)] = s.tree.files[p]
			delete(s.tree.files, p)
		}
	}
}

// display is the author's path of a file, whatever it is mounted as.
func (s *source) display(p string) string {
	p = strings.TrimPrefix(p, "/")
	switch {
	case p == "":
		return "."
	case path.Dir(p) == s.schema:
		return path.Join(mount, "schema", path.Base(p)) // no place of the author's
	case within(p, vendorMount):
		for at, dir := range s.vendored {
			if within(p, at) {
				return dir + strings.TrimPrefix(p, at)
			}
		}
	}
	return p
}
