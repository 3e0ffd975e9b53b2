// Package builtin has an agent's tools for work on files: Bash, Read, Write, Edit, Glob and Grep, and a task list.
//
//	tools, err := builtin.New(builtin.Config{Dirs: []string{"/work/project"}})
//
// makes all of them; [Bash], [Read] and so on make one. Commands run in the first working
// directory, Glob and Grep search in it, and relative paths are relative to it.
//
// # Permission
//
// Each tool judges its own calls for the permission engine, from the arguments and the links on disk, without
// opening files. Read, Glob and Grep are allowed below a working directory of the policy; other paths need
// approval. A deny or ask rule for Read also applies to Glob and Grep: they skip the files that it covers, and
// files with credentials, and report how many. A deny or ask rule for Write that has a pattern also applies to Edit,
// and one for Edit to Write. Confined commands cannot access what a deny rule for Read, Write or Edit covers. Reading
// credentials, and writing files that change how other programs behave (.git, .ssh, .bashrc, …), is a safety ask,
// which no rule can avoid. Write and Edit are allowed below a working directory
// in the modes accept-edits and dont-ask. Bash is judged by parsing the command. A policy without directories
// uses those of the [Config]. Write and Edit show their changes through [tool.Previewer].
//
// # Reading before writing
//
// If the context carries a [toolstate.State], Write and Edit refuse an existing file whose current content was
// not read in the session. The state has a hash of each file that was read or written, never the content.
//
// # What is and what is not a boundary
//
// What was judged is what runs. The judgement of a call ([permission.Judgement]) has the files that the call opens,
// with their links resolved and their identities, and the text that Bash runs; the tools use these. If a file is
// replaced in between, or a link is put in its path, the call fails with [ErrMoved]. [Local] documents what is
// guaranteed on which system. A tool that runs without a judgement uses whatever is at the path at that time.
//
// Local confines a judged command on Linux, if the kernel permits it: a command proved read-only cannot write, any
// other can write only in the working directories, and files with credentials are hidden. See [Local.Sandbox] and the
// package sandbox. On other systems, and after approval to leave the sandbox, what Bash runs has the rights of the
// process; confine it with another [Backend]. Variables that look like credentials are removed from the environment
// of every command.
//
// PDF files are untrusted. Read stops a [PDFReader] after half a minute; the reader must limit its memory.
package builtin

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// Config configures the tools.
type Config struct {
	// Dirs are the working directories. Commands run in the first, and relative paths are relative to it. Empty means
	// the directory of the process. If a directory does not exist, only the calls in it fail.
	Dirs []string

	// Backend is the machine the tools work on; nil is a [Local] of Dirs.
	Backend Backend

	// ProtectedFiles are base names of files, and ProtectedDirs are names of directories anywhere in a path. Bash,
	// Write and Edit ask before they write there, whatever the rules say, as for well-known names such as .git. Case
	// is ignored.
	ProtectedFiles []string
	ProtectedDirs  []string

	// Trusted are absolute paths of directories whose settings, plugins and toolchains may run, because the user
	// trusts them as a whole. In any other directory, including working directories, a command that would run
	// programs of the directory, such as those that .git/config names, is not read-only.
	Trusted []string

	// KeepEnv are names of variables that stay in the environment of commands although they look like credentials.
	// Other variables are removed if their names (*_KEY, *_TOKEN, *SECRET*, *PASSWORD*, AWS_*, …) or values look
	// like credentials.
	KeepEnv []string

	// Secrets are values, such as the model's key, whose variables are removed from the environment of commands
	// even if KeepEnv names them. Values shorter than six bytes are ignored.
	Secrets []string

	// MaxOutput is how much of a command's output Bash returns, in characters; 0 means
	// 30,000. An agent that stores long results for the model to search can use much more.
	MaxOutput int

	// ImageTypes are the media types, such as "image/png" or "image/*", that Read
	// returns as data; nil means image/png, image/jpeg, image/gif and image/webp.
	ImageTypes []string

	// PDF reads PDF files for Read, such as pdf.Reader of the module
	// github.com/kitbag-go/kitbag/builtin/pdf; with nil, Read refuses them.
	PDF PDFReader

	links *links // caches the symbolic links that one call has read; may be nil
}

// New returns all tools of this package.
func New(c Config) ([]tool.Tool, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	var all []tool.Tool
	for _, newTool := range []func(Config) (tool.Tool, error){
		Bash, Read, Write, Edit, Glob, Grep, TaskCreate, TaskGet, TaskList, TaskUpdate} {
		t, err := newTool(c)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// complete returns c with its defaults filled in and its directories absolute.
func (c Config) complete() (Config, error) {
	dirs := c.Dirs
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	c.Dirs = make([]string, len(dirs))
	for i, d := range dirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return Config{}, fmt.Errorf("builtin: working directory %q: %w", d, err)
		}
		c.Dirs[i] = abs
	}
	if c.Backend == nil {
		c.Backend = &Local{Dirs: c.Dirs}
	}
	return c, nil
}

// place returns the directories and functions that resolve paths under the policy p, which may be nil.
func (c *Config) place(p *permission.Policy) pathrule.Place {
	home, _ := os.UserHomeDir() // "" means unknown
	at := pathrule.Place{Cwd: c.Dirs[0], Home: home, Dirs: c.Dirs, Trusted: c.Trusted}
	at.Dirs = c.workingDirs(&at, p)
	if b, ok := c.Backend.(linkReader); ok {
		at.Readlink, at.ReadFile, at.ReadDir = b.Readlink, c.readFile, c.readDir // may be another machine
	}
	if c.links != nil {
		at.Readlink = c.links.readlink
	}
	return at
}

// maxSettings is the size of the largest file that is read to judge a command, in bytes.
const maxSettings = 1 << 20

// readFile and readDir read from the backend's machine.
func (c *Config) readFile(name string) ([]byte, error) {
	f, err := c.Backend.Open(context.Background(), permission.File{Path: name})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return readAll(f, info, name, maxSettings)
}

func (c *Config) readDir(name string) ([]string, error) {
	f, err := c.Backend.Open(context.Background(), permission.File{Path: name})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("%s is not a directory", name)
	}
	entries, err := list.ReadDir(-1)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// workingDirs returns the working directories under p, absolute and clean. Relative directories of p, which
// [permission.Policy.Check] reports as errors, are relative to the directory in which commands run.
func (c *Config) workingDirs(at *pathrule.Place, p *permission.Policy) []string {
	if p == nil || len(p.Dirs) == 0 || slices.Equal(p.Dirs, c.Dirs) {
		return c.Dirs
	}
	dirs := slices.Clone(p.Dirs)
	for i, d := range dirs {
		dirs[i] = cmp.Or(at.Abs(d), d) // keep d, since an empty list would mean the directories of the Config
	}
	return dirs
}

// A linkReader is a [Backend] that reads its own symbolic links.
type linkReader interface {
	Readlink(path string) (string, error)
}

func (c *Config) protected() pathrule.Protected {
	return pathrule.Protected{Files: c.ProtectedFiles, Dirs: c.ProtectedDirs}
}
