package skill

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// A Remote has the files of a skill that is not on this machine, such as one that an MCP server serves. A file is
// fetched when it is needed. A Remote is safe for concurrent use.
type Remote interface {
	// Manifest returns all files of the skill, SKILL.md among them. It fetches nothing.
	Manifest() []ManifestFile

	// FrontMatter returns what [FrontMatter] returns for the SKILL.md. It fetches nothing.
	FrontMatter() map[string]any

	// Read returns the content of a file of the manifest, after it has checked the digest.
	Read(ctx context.Context, name string) ([]byte, error)
}

// A ManifestFile is a file of a skill, with the digest of its content.
type ManifestFile struct {
	Name   string // relative to the skill's folder, with slashes
	Bytes  int64
	Digest string // see [Digest]
}

// The limits of a manifest, which are those of MCP's skills extension.
const (
	MaxManifestFiles = 512
	MaxManifestBytes = 16 << 20
)

// Digest returns "sha256:" and the SHA-256 hash of data in lowercase hexadecimal digits.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Manifest returns all files of the skill, SKILL.md first and the others sorted by name. It fails if the files exceed
// [MaxManifestFiles] or [MaxManifestBytes]. A file is read again only if its size or time has changed.
func (s *Skill) Manifest() ([]ManifestFile, error) {
	if s.Remote != nil {
		return s.Remote.Manifest(), nil
	}
	var files []File
	if s.at != (fileTree{}) { // the skill has files
		var err error
		if files, err = s.Files(); err != nil {
			return nil, err
		}
	}
	if len(files) >= MaxManifestFiles {
		return nil, fmt.Errorf("skill %s has more than %d files", quote(s.Name), MaxManifestFiles)
	}
	var total int64
	var list []ManifestFile
	for _, f := range append([]File{{Name: skillFile}}, files...) {
		m, err := s.manifestFile(f.Name)
		if err != nil {
			return nil, s.wrap("make the manifest of", err)
		}
		if total += m.Bytes; total > MaxManifestBytes {
			return nil, fmt.Errorf("skill %s has more than %d bytes", quote(s.Name), MaxManifestBytes)
		}
		list = append(list, m)
	}
	return list, nil
}

// A cachedEntry is an entry of a manifest, with the modification time of its file.
type cachedEntry struct {
	ManifestFile
	mtime time.Time
}

func (s *Skill) manifestFile(name string) (ManifestFile, error) {
	var mtime time.Time
	if s.at != (fileTree{}) {
		info, err := s.at.stat(s.at.path(path.Join(s.folder, s.diskName(name))))
		if err != nil {
			return ManifestFile{}, err
		}
		mtime = info.ModTime()
		if old, ok := s.hashes.Load(name); ok && old.(cachedEntry).mtime.Equal(mtime) && old.(cachedEntry).Bytes == info.Size() {
			return old.(cachedEntry).ManifestFile, nil
		}
	}
	data, err := s.Read(context.Background(), name) // a local file
	if err != nil {
		return ManifestFile{}, err
	}
	m := ManifestFile{name, int64(len(data)), Digest(data)}
	s.hashes.Store(name, cachedEntry{m, mtime})
	return m, nil
}

// Read returns the content of a file of the skill by its name relative to the skill's folder, at most
// [MaxManifestBytes]. Names and links that lead out of the folder are refused. A file that is not on this machine is
// fetched, until ctx is done. SKILL.md of a skill without a file is made from its fields.
func (s *Skill) Read(ctx context.Context, name string) ([]byte, error) {
	switch {
	case s.Remote != nil:
		return s.Remote.Read(ctx, name)
	case name == skillFile && s.at == (fileTree{}):
		return fmt.Appendf(nil, "---\nname: %s\ndescription: %s\n---\n\n%s", strconv.Quote(s.Name), strconv.Quote(s.Description), s.Body), nil
	}
	data, err := s.readFile(s.diskName(name), MaxManifestBytes)
	return data, s.wrap("read file "+quote(name)+" of", err)
}

// diskName returns the name of a file on disk, where SKILL.md may have another spelling.
func (s *Skill) diskName(name string) string {
	if name == skillFile {
		return path.Base(strings.ReplaceAll(s.Path, `\`, "/"))
	}
	return name
}

// remoteFiles lists the files of a remote skill, except SKILL.md.
func (s *Skill) remoteFiles() (list []File) {
	for _, f := range s.Remote.Manifest() {
		if f.Name != skillFile {
			list = append(list, File{f.Name, f.Bytes, kindOf(f.Name)})
		}
	}
	return list
}

// readRemote reads a file of a remote skill for a model.
func (s *Skill) readRemote(ctx context.Context, name string) ([]byte, error) {
	for _, f := range s.Remote.Manifest() {
		if f.Name != name {
			continue
		}
		if f.Bytes > maxResource {
			return nil, fmt.Errorf("file %s of skill %s has %d bytes, more than the limit of %d", quote(name), quote(s.Name), f.Bytes, maxResource)
		}
		return s.Remote.Read(ctx, name)
	}
	return nil, fs.ErrNotExist
}

// fetch returns a remote skill with its text.
func (s *Skill) fetch(ctx context.Context) (*Skill, error) {
	content, err := s.readRemote(ctx, skillFile)
	if err != nil {
		return nil, s.wrap("read", err)
	}
	full, problems := Parse(s.Path, content)
	if full == nil {
		fatal := slices.IndexFunc(problems, func(d Diagnostic) bool { return d.Fatal })
		return nil, fmt.Errorf("read skill %s: %s", quote(s.Name), problems[fatal])
	}
	full.Name, full.Description, full.AllowedTools = s.Name, s.Description, nil
	full.Origin, full.Remote = s.Origin, s.Remote
	return full, nil
}

// FrontMatter returns the front matter of a SKILL.md as a JSON object with all its fields. Numbers are float64, and
// what JSON cannot represent, such as a date, is text as written.
func FrontMatter(content []byte) (map[string]any, error) {
	r := &report{file: skillFile}
	if text, ok := decodeText(r, content); ok {
		if p, ok := split(r, text); ok {
			if header := parseHeader(r, p); header != nil {
				fields, _ := jsonValue(header).(map[string]any)
				return fields, nil
			}
		}
	}
	return nil, fmt.Errorf("read front matter: %s", r.problems[len(r.problems)-1])
}

// jsonValue converts a YAML value for JSON.
func jsonValue(n *yaml.Node) any {
	switch n = resolve(n); n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for key, value := range pairs(n) {
			out[key.Value] = jsonValue(value)
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, item := range n.Content {
			out[i] = jsonValue(item)
		}
		return out
	}
	var v any
	var number float64
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		if n.Decode(&v) == nil {
			return v
		}
	case "!!int", "!!float":
		if n.Decode(&number) == nil && !math.IsNaN(number) && !math.IsInf(number, 0) {
			return number
		}
	}
	return n.Value
}
