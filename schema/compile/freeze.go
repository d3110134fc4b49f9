package compile

import (
	"bytes"
	"path"
	"regexp"
	"slices"

	"github.com/sluice-xds/sluice/schema"
)

// salvage makes the fleet of those groups that no broken package is part of (rule
// R9). A package is broken if something of its own is wrong, or if it needs one
// that is. Without it a group's configuration may still be closed, but lacks what
// the package adds: so each group that shares a name with a broken package keeps
// its last good revision, even where that is more than would be needed.
//
// It needs nothing of the past: a restarted server comes to the same end.
func salvage(s *source, pkgs []pkg, found schema.Diagnostics, dir string) (made, schema.Diagnostics) {
	_, first := fleetOf(pkgs, found, dir)
	broken := map[int]schema.Diagnostics{}   // by place in pkgs
	files := map[string]schema.Diagnostics{} // that are part of no package
	for wrong, again := first, false; len(wrong) > 0; again = true {
		before := len(broken) + len(files)
		for _, d := range wrong {
			owners := s.ownersOf(d.Pos.File, pkgs)
			for _, i := range owners {
				if again {
					broken[i] = slices.Clone(first) // it needs what is wrong
				} else {
					broken[i] = append(broken[i], d)
				}
			}
			if len(owners) > 0 {
				continue
			}
			if f := s.tree.files[d.Pos.File]; f == nil || !takesPart(f.name) {
				return made{}, first // nobody's own: the repository's
			}
			files[d.Pos.File] = append(files[d.Pos.File], d)
		}
		if len(broken)+len(files) == before {
			return made{}, first
		}
		var f made
		if f, wrong = fleetOf(without(pkgs, broken), warningsOf(found), dir); len(wrong) == 0 {
			return s.freeze(f, pkgs, broken, files, first)
		}
	}
	return made{}, first
}

func without(pkgs []pkg, broken map[int]schema.Diagnostics) (sound []pkg) {
	for i := range pkgs {
		if broken[i] == nil {
			sound = append(sound, pkgs[i])
		}
	}
	return sound
}

// freeze takes the groups out of a fleet that what is broken mentions.
func (s *source) freeze(f made, pkgs []pkg, broken map[int]schema.Diagnostics, files map[string]schema.Diagnostics, first schema.Diagnostics) (made, schema.Diagnostics) {
	for i := range pkgs {
		if why := broken[i]; why != nil {
			f.Broken = append(f.Broken, s.mention(&pkgs[i], why.Sorted()))
		}
	}
	for file, why := range sorted(files) {
		b := schema.Broken{Dir: path.Dir(file), Errors: why.Sorted(), Words: map[string]bool{}, Labels: map[string]bool{}}
		s.mentionFile(file, &b)
		f.Broken = append(f.Broken, b)
	}
	f.Groups = slices.DeleteFunc(f.Groups, func(g schema.Group) bool { return f.freezes(&g) })
	if len(f.Groups) == 0 {
		return made{}, first
	}
	return f, nil
}

// ownersOf are the packages that a file is part of.
func (s *source) ownersOf(file string, pkgs []pkg) (owners []int) {
	dir, name := path.Dir(file), ""
	for _, f := range s.byDir[dir] {
		if f.path == file {
			name = f.pkg
		}
	}
	for i := range pkgs {
		if p := &pkgs[i]; p.file == file || within(p.dir, dir) && (name == p.name || name == "" && p.dir == dir) {
			owners = append(owners, i)
		}
	}
	return owners
}

// mention is what a broken package could be about.
func (s *source) mention(p *pkg, why schema.Diagnostics) schema.Broken {
	b := schema.Broken{Dir: p.dir, Package: p.name, Errors: why, Words: map[string]bool{}, Labels: map[string]bool{}}
	if p.root != nil {
		p.root.words(&b)
		return b
	}
	for _, dir := range s.inherited(p.dir) {
		for _, f := range s.byDir[dir] {
			if f.pkg == p.name || f.pkg == "" || dir == p.dir {
				s.mentionFile(f.path, &b)
			}
		}
	}
	return b
}

// mentionFile takes what a file says at its word: nobody knows more of it. Only
// if it is CUE after all is a label told from other text.
func (s *source) mentionFile(name string, b *schema.Broken) {
	data := s.tree.files[name].data
	b.Any = b.Any || computes(data)
	schema.Words(string(data), b.Words)
	if slices.ContainsFunc(b.Errors, func(d schema.Diagnostic) bool { return !judged[d.Code] }) {
		schema.Words(string(data), b.Labels)
		return
	}
	for _, label := range aLabel.FindAll(data, -1) {
		schema.Words(string(label), b.Labels)
	}
}

// judged are the codes of what CUE could read.
var judged = setOf([]string{"value", "unknown-field", "missing-field", "conflict", "incomplete", "reference", "cue"})

// words collects all names and texts in a value.
func (n *node) words(b *schema.Broken) {
	schema.Words(n.text, b.Words)
	for _, f := range n.fields {
		schema.Words(f.name, b.Words)
		schema.Words(f.name, b.Labels)
		f.value.words(b)
	}
	for _, e := range n.elems {
		e.words(b)
	}
}

var (
	aLabel      = regexp.MustCompile(`("[^"\n]*"|[A-Za-z0-9_$]+)[ \t]*[?!]?[ \t]*:`)
	plainString = regexp.MustCompile(`"[^"\\\n]*"`)
	importing   = regexp.MustCompile(`(?m)^import\s*(\(\s*)?([a-zA-Z_][a-zA-Z0-9_]*\s*)?"`)
	building    = regexp.MustCompile(`\\|\+|@embed`)
)

// computes reports whether names could be made in a file that are not in it as
// they are: put together, or taken from elsewhere.
func computes(data []byte) bool {
	data = bytes.ReplaceAll(data, []byte(`"`+schemaImport+`"`), nil)
	if importing.Match(data) {
		return true
	}
	return building.Match(plainString.ReplaceAll(data, nil))
}

// made is a fleet that was compiled without some packages.
type made struct {
	*schema.Fleet
	lo *lowering
}

// freezes reports whether a broken package could change the group: it mentions
// the group or a listener of it, or could define what that leads to. To send
// traffic to a service, as many do, is no change of it.
func (f made) freezes(g *schema.Group) bool {
	names := map[string]bool{g.Name: true} // to whether a mention is enough
	for r := range g.Snapshot.All() {
		// A listener's own name on the wire may be that of a host, which many share.
		for _, ref := range r.Refs {
			if _, known := names[ref.Name]; !known {
				names[ref.Name] = false
			}
		}
		for _, o := range f.Provenance[r.Key] {
			names[o.Name] = names[o.Name] || o.Kind == "listener"
		}
	}
	var why schema.Diagnostics
	for i := range f.Broken {
		b := &f.Broken[i]
		for name, mentioned := range names {
			if b.Defines(name) || mentioned && b.Mentions(name) {
				why = append(why, b.Errors...)
				break
			}
		}
	}
	if len(why) == 0 {
		return false
	}
	if f.Frozen == nil {
		f.Frozen = map[string]schema.Diagnostics{}
	}
	f.Frozen[g.Name] = why.Sorted()
	return true
}

func warningsOf(ds schema.Diagnostics) schema.Diagnostics {
	return slices.DeleteFunc(slices.Clone(ds), func(d schema.Diagnostic) bool { return d.Severity == schema.Error })
}
