package compile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sluice-xds/sluice/schema"
)

// Limits bound what is read from a tree, so that no repository can exhaust the
// memory of whoever compiles it. Zero fields mean the default.
type Limits struct {
	Files int   // files of the tree; default 50,000
	File  int64 // bytes of one file that is read; default 4 MiB
	Total int64 // bytes of all CUE files; default 128 MiB

	// Memory and Deadline bound a worker: the bytes of its data, 1 GiB by
	// default, and the time that one package may take, 30 s.
	Memory   int64
	Deadline time.Duration
}

func (l Limits) orDefault() Limits {
	if l.Files == 0 {
		l.Files = 50_000
	}
	if l.File == 0 {
		l.File = 4 << 20
	}
	if l.Total == 0 {
		l.Total = 128 << 20
	}
	return l
}

// memFS is an immutable file tree with an index of its directories. It holds
// regular files alone; CUE files are read when it is made, others (for @embed)
// when they are asked for.
type memFS struct {
	files map[string]*memFile
	dirs  map[string][]fs.DirEntry // sorted by name
	src   fs.FS
	limit int64
}

func newDirs() map[string][]fs.DirEntry { return map[string][]fs.DirEntry{} }

type memFile struct {
	name string
	size int64
	data []byte
	lazy string // path in src
	dir  bool

	broken string // why it cannot be read, in a worker
}

// readTree copies the tree into memory. What is no regular file is refused if
// it stands where packages are read (at or below root, or as a CUE file above
// it), and does not exist elsewhere. Directories whose names begin with a dot
// hold no configuration.
func readTree(src fs.FS, root string, limits Limits) (*memFS, schema.Diagnostics) {
	m := &memFS{files: map[string]*memFile{}, dirs: newDirs(), src: src, limit: limits.File}
	var ds schema.Diagnostics
	var total int64
	err := fs.WalkDir(src, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case p == ".":
			return nil
		case d.IsDir() && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			if within(p, root) || within(root, path.Dir(p)) && strings.HasSuffix(p, ".cue") {
				ds = append(ds, irregular(p, d.Type()))
			}
			return nil
		}
		if len(m.files) >= limits.Files {
			ds = append(ds, schema.Diagnostic{
				Pos: schema.Pos{File: p}, Code: "too-large",
				Message: fmt.Sprintf("the repository has more than %d files", limits.Files),
				Hint:    "keep the configuration in a repository, or on a branch, of its own",
			})
			return fs.SkipAll
		}
		f := &memFile{name: d.Name(), lazy: p}
		if strings.HasSuffix(p, ".cue") {
			if f.data, err = readCapped(src, p, limits.File); err != nil {
				ds = append(ds, unreadable(p, err))
				return nil
			}
			f.size = int64(len(f.data))
			if total += f.size; total > limits.Total {
				ds = append(ds, schema.Diagnostic{
					Pos: schema.Pos{File: p}, Code: "too-large",
					Message: fmt.Sprintf("the repository's CUE files are larger than %d bytes", limits.Total),
				})
				return fs.SkipAll
			}
		}
		m.files[p] = f
		return nil
	})
	if err != nil {
		ds = append(ds, schema.Diagnostic{Pos: schema.Pos{File: "."}, Code: "read", Message: fmt.Sprintf("cannot read the repository: %v", err)})
	}
	return m, ds
}

// readCapped reads a file of at most limit bytes.
func readCapped(src fs.FS, p string, limit int64) ([]byte, error) {
	f, err := src.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = &sizeError{limit}
	}
	return data, err
}

type sizeError struct{ limit int64 }

func (e *sizeError) Error() string { return fmt.Sprintf("larger than %d bytes", e.limit) }

func unreadable(p string, err error) schema.Diagnostic {
	d := schema.Diagnostic{Pos: schema.Pos{File: p}, Code: "read", Message: fmt.Sprintf("cannot read the file: %v", err)}
	if se, ok := err.(*sizeError); ok {
		d.Code, d.Message = "too-large", "the file is "+se.Error()
	}
	return d
}

func irregular(p string, mode fs.FileMode) schema.Diagnostic {
	d := schema.Diagnostic{Pos: schema.Pos{File: p}, Code: "irregular-file"}
	if mode&fs.ModeSymlink != 0 {
		d.Message, d.Hint = "is a symbolic link: only regular files are read", "put the file itself here"
	} else {
		d.Message, d.Hint = "is a submodule or a special file: only regular files are read", "copy what it holds into this repository"
	}
	return d
}

// within reports whether p is dir or stands below it.
func within(p, dir string) bool {
	return dir == "." || p == dir || strings.HasPrefix(p, dir+"/")
}

// put adds a file, in place of any other of its name.
func (m *memFS) put(p string, data []byte) {
	m.files[p] = &memFile{name: path.Base(p), data: data, size: int64(len(data))}
}

// dropFunc removes the files that drop accepts.
func (m *memFS) dropFunc(drop func(p string) bool) {
	for p := range m.files {
		if drop(p) {
			delete(m.files, p)
		}
	}
}

// seal builds the index of directories. The tree does not change after.
func (m *memFS) seal() {
	m.dirs["."] = nil
	for p := range m.files {
		for dir := path.Dir(p); dir != "." && m.dirs[dir] == nil; dir = path.Dir(dir) {
			m.dirs[dir] = []fs.DirEntry{}
		}
	}
	for dir := range m.dirs {
		if dir != "." {
			parent := path.Dir(dir)
			m.dirs[parent] = append(m.dirs[parent], fs.FileInfoToDirEntry(&memFile{name: path.Base(dir), dir: true}))
		}
	}
	for p, f := range m.files {
		dir := path.Dir(p)
		m.dirs[dir] = append(m.dirs[dir], fs.FileInfoToDirEntry(f))
	}
	for _, entries := range m.dirs {
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
}

// Open, ReadFile, ReadDir and Stat are those of io/fs.
func (m *memFS) Open(name string) (fs.File, error) {
	if entries, ok := m.dirs[name]; ok {
		return &openDir{memFile{name: path.Base(name), dir: true}, entries}, nil
	}
	f, ok := m.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	data, err := m.read(f)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &openFile{f, strings.NewReader(string(data))}, nil
}

func (m *memFS) read(f *memFile) ([]byte, error) {
	if f.broken != "" {
		return nil, errors.New(f.broken)
	}
	if f.data != nil || f.lazy == "" {
		return f.data, nil
	}
	return readCapped(m.src, f.lazy, m.limit)
}

// ReadFile is fs.ReadFileFS's.
func (m *memFS) ReadFile(name string) ([]byte, error) {
	f, ok := m.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	data, err := m.read(f)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return slices.Clip(data), nil
}

// ReadDir is fs.ReadDirFS's.
func (m *memFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, ok := m.dirs[name]
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	return slices.Clone(entries), nil
}

// Stat is fs.StatFS's.
func (m *memFS) Stat(name string) (fs.FileInfo, error) {
	if _, ok := m.dirs[name]; ok {
		return &memFile{name: path.Base(name), dir: true}, nil
	}
	if f, ok := m.files[name]; ok {
		return f, nil
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

func (f *memFile) Name() string     { return f.name }
func (f *memFile) Size() int64      { return f.size }
func (*memFile) ModTime() time.Time { return time.Time{} }
func (f *memFile) IsDir() bool      { return f.dir }
func (*memFile) Sys() any           { return nil }
func (f *memFile) Mode() fs.FileMode {
	if f.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type openFile struct {
	info *memFile
	*strings.Reader
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (*openFile) Close() error                 { return nil }

type openDir struct {
	info memFile
	rest []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return &d.info, nil }
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.name, Err: fs.ErrInvalid}
}
func (*openDir) Close() error { return nil }
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(d.rest) {
		if n > 0 && len(d.rest) == 0 {
			return nil, io.EOF
		}
		n = len(d.rest)
	}
	out := d.rest[:n]
	d.rest = d.rest[n:]
	return out, nil
}
