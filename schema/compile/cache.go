package compile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cuelang.org/go/cue/parser"

	"github.com/sluice-xds/sluice/schema"
)

// Cache remembers evaluated packages by what they were evaluated from, across
// trees and commits (rule C2). It is safe for concurrent use. Memory holds the
// packages of the last trees, a directory all that was evaluated.
//
// Nothing here is ever stale: a key is the hash of all that can change the
// outcome. What is damaged on disk is evaluated anew.
type Cache struct {
	dir string

	mu    sync.Mutex
	pkgs  map[cacheKey]*cached
	files map[[sha256.Size]byte]fileFacts
	turn  int
	last  *state
	steps int // fleets that were made from the last
}

type cacheKey [sha256.Size]byte

type cached struct {
	pkg  pkg
	turn int // when it was last of use
}

// fileFacts are what the key of a package needs to know of one of its files.
type fileFacts struct {
	imports []string // but for the schema and CUE's own
	embeds  bool
	used    int
}

// kept is for how many trees a package stays in memory without being used.
const kept = 8

// NewCache makes a cache. A directory makes it outlive the process; "" does not.
func NewCache(dir string) *Cache {
	return &Cache{dir: dir, pkgs: map[cacheKey]*cached{}, files: map[[sha256.Size]byte]fileFacts{}}
}

// take is what is known of the last compilation of a directory, if nobody else has
// it; keep gives it back, or what came of it.
func (c *Cache) take(dir string, limits Limits) *state {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.last
	if st == nil || st.dir != dir || st.limits != limits {
		return nil
	}
	c.last = nil
	return st
}

func (c *Cache) keep(st *state) {
	if c == nil || st == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = st
	c.steps += st.steps
	st.steps = 0
}

// next begins another tree.
func (c *Cache) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
}

// get fills in what is known of some of the source's packages. It returns the
// places of the others, and all their keys.
func (c *Cache) get(s *source, which []int, out []pkg) (missing []int, keys map[int]cacheKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys = make(map[int]cacheKey, len(which))
	k := keying{cache: c, source: s, sums: map[string][sha256.Size]byte{}}
	for _, i := range which {
		key := k.of(s.pkgs[i])
		keys[i] = key
		hit := c.pkgs[key]
		if hit == nil {
			if p, ok := c.load(key); ok {
				if p.root != nil && !p.base {
					p.decoded()
				}
				hit = &cached{pkg: p}
				c.pkgs[key] = hit
			}
		}
		if hit == nil {
			missing = append(missing, i)
			continue
		}
		hit.turn = c.turn
		out[i] = hit.pkg
	}
	return missing, keys
}

// put remembers packages, and forgets those that were of no use for long.
func (c *Cache) put(keys map[int]cacheKey, which []int, pkgs []pkg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range which {
		p := pkgs[i]
		if p.root != nil && !p.base {
			p.decoded() // before others may see it
			pkgs[i] = p
		}
		if slices.ContainsFunc(p.bad, func(d schema.Diagnostic) bool { return d.Code == "evaluation-limit" || d.Code == "internal" }) {
			continue // it may be better the next time
		}
		c.pkgs[keys[i]] = &cached{p, c.turn}
		if !p.data { // to read that again takes no longer
			c.save(keys[i], &p)
		}
	}
	for k, p := range c.pkgs {
		if c.turn-p.turn > kept {
			delete(c.pkgs, k)
		}
	}
	for h, f := range c.files {
		if c.turn-f.used > kept {
			delete(c.files, h)
		}
	}
}

func (c *Cache) file(k cacheKey) string {
	name := hex.EncodeToString(k[:])
	return filepath.Join(c.dir, name[:2], name[2:])
}

func (c *Cache) load(k cacheKey) (pkg, bool) {
	if c.dir == "" {
		return pkg{}, false
	}
	data, err := os.ReadFile(c.file(k))
	if err != nil || len(data) < sha256.Size || sha256.Sum256(data[sha256.Size:]) != [sha256.Size]byte(data[:sha256.Size]) {
		return pkg{}, false
	}
	p, err := decodePkg(data[sha256.Size:])
	return p, err == nil
}

// save writes a package by renaming, so that nobody reads a half. A disk that
// cannot be written costs time and nothing else.
func (c *Cache) save(k cacheKey, p *pkg) {
	if c.dir == "" {
		return
	}
	name := c.file(k)
	if os.MkdirAll(filepath.Dir(name), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(name), "new-*")
	if err != nil {
		return
	}
	data := p.encode()
	sum := sha256.Sum256(data)
	_, err = f.Write(append(sum[:], data...))
	if f.Close() != nil || err != nil || os.Rename(f.Name(), name) != nil {
		os.Remove(f.Name())
	}
}

// keying makes the keys of one tree.
type keying struct {
	cache  *Cache
	source *source
	sums   map[string][sha256.Size]byte
	common []byte
	dirs   map[string][]string // of an import
	others []string            // all files but CUE's, sorted
}

// of is the key of a package: the schema, CUE's version and the module file; the
// CUE files of its directory and of those above; what it embeds could be any file
// below; and the same of all local packages that it imports.
func (k *keying) of(ref pkgRef) cacheKey {
	h := sha256.New()
	h.Write(k.shared())
	put := func(s string) {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	put(ref.dir)
	put(ref.name)
	put(ref.file)
	seen := map[string]bool{}
	dirs := []string{ref.dir}
	for len(dirs) > 0 {
		dir := dirs[0]
		dirs = dirs[1:]
		for d := dir; !seen[d]; d = path.Dir(d) {
			seen[d] = true
			for _, f := range k.source.byDir[d] {
				p := f.path
				sum := k.sum(p)
				put(p)
				h.Write(sum[:])
				facts := k.facts(p, sum)
				for _, imported := range facts.imports {
					dirs = append(dirs, k.resolve(imported)...)
				}
				if facts.embeds {
					k.below(d, func(p string, sum [sha256.Size]byte) {
						put(p)
						h.Write(sum[:])
					})
				}
			}
			if d == "." {
				break
			}
		}
	}
	return cacheKey(h.Sum(nil))
}

// shared is what all keys begin with.
func (k *keying) shared() []byte {
	if k.common != nil {
		return k.common
	}
	h := sha256.New()
	h.Write([]byte(strconv.Itoa(codecVersion) + cueVersion()))
	files, _ := fs.Glob(schema.CUE, "*.cue")
	for _, name := range files {
		data, _ := schema.CUE.ReadFile(name)
		h.Write([]byte(name))
		h.Write(data)
	}
	h.Write(k.source.tree.files[path.Join(k.source.module, "cue.mod/module.cue")].data)
	for _, at := range sortedKeys(k.source.vendored) {
		for _, dir := range sortedKeys(k.source.byDir) {
			if !within(dir, at) {
				continue
			}
			for _, f := range k.source.byDir[dir] {
				sum := k.sum(f.path)
				h.Write([]byte(f.path))
				h.Write(sum[:])
			}
		}
	}
	k.common = h.Sum(nil)
	return k.common
}

var cueVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "cuelang.org/go" {
				return dep.Version + dep.Sum
			}
		}
	}
	return languageLevel
})

func (k *keying) sum(p string) [sha256.Size]byte {
	sum, ok := k.sums[p]
	if !ok {
		data, err := k.source.tree.read(k.source.tree.files[p])
		if err != nil {
			data = []byte("error: " + err.Error())
		}
		sum = sha256.Sum256(data)
		k.sums[p] = sum
	}
	return sum
}

// facts reads a file's imports, once for each content.
func (k *keying) facts(p string, sum [sha256.Size]byte) fileFacts {
	facts, ok := k.cache.files[sum]
	if !ok {
		data := k.source.tree.files[p].data
		facts.embeds = strings.Contains(string(data), "@embed")
		if f, err := parser.ParseFile(p, data, parser.ImportsOnly); err == nil {
			for spec := range f.ImportSpecs() {
				ip, err := strconv.Unquote(spec.Path.Value)
				if first, _, _ := strings.Cut(ip, "/"); err == nil && strings.Contains(first, ".") && ip != schemaImport {
					facts.imports = append(facts.imports, ip)
				}
			}
		}
	}
	facts.used = k.cache.turn
	k.cache.files[sum] = facts
	return facts
}

// resolve finds the directories of an import in the author's own module. What is
// vendored is in every key.
func (k *keying) resolve(ip string) []string {
	ip, _, _ = strings.Cut(ip, ":")
	if out, ok := k.dirs[ip]; ok {
		return out
	}
	var out []string
	for dir := range k.source.byDir {
		rel := strings.TrimPrefix(strings.TrimPrefix(dir, k.source.module), "/")
		if k.source.module == "." {
			rel = dir
		}
		if rel != "" && rel != "." && (ip == rel || strings.HasSuffix(ip, "/"+rel)) {
			out = append(out, dir)
		}
	}
	slices.Sort(out)
	if len(out) == 0 { // the module's root, or nothing
		out = []string{k.source.module}
	}
	if k.dirs == nil {
		k.dirs = map[string][]string{}
	}
	k.dirs[ip] = out
	return out
}

// below calls each for the files in a directory, and deeper, that are no CUE.
func (k *keying) below(dir string, each func(string, [sha256.Size]byte)) {
	if k.others == nil {
		k.others = []string{}
		for _, p := range sortedKeys(k.source.tree.files) {
			if !strings.HasSuffix(p, ".cue") {
				k.others = append(k.others, p)
			}
		}
	}
	prefix := dir + "/"
	if dir == "." {
		prefix = ""
	}
	at, _ := slices.BinarySearch(k.others, prefix)
	for _, p := range k.others[at:] {
		if !strings.HasPrefix(p, prefix) {
			break
		}
		each(p, k.sum(p))
	}
}
