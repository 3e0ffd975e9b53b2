package mcpclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/skill"
)

// skillsExtension is the capability of servers with skills (SEP-2640).
const skillsExtension = "io.modelcontextprotocol/skills"

// skillFile is the file of a skill that has its instructions.
const skillFile = "SKILL.md"

// Skills returns a loader of the server's skills (MCP's extension io.modelcontextprotocol/skills), for the group that has
// the server's tools. A skill is called SERVER/PATH, with the path in its URI, such as docs/billing/refunds. The loader does
// not start the server: it has no skills until another method, such as [Client.Tools], has connected to the server.
//
// The text and the files of a skill are fetched when they are read, and are used only if they have the digests that the
// server has listed. The skill's allowed-tools are ignored. A skill without a list of files ("dynamic") is not used, since
// its content could be anything.
func (c *Client) Skills() skill.Loader { return &skillLoader{c.cat, c.runner} }

// A skillLoader implements [skill.Loader].
type skillLoader struct {
	cat    *catalogue
	runner *runner
}

// Load returns the skills of the last list. It requests the list the first time and after a change; see [Client.Prompts].
func (l *skillLoader) Load(ctx context.Context) ([]*skill.Skill, []skill.Diagnostic, error) {
	if _, server := l.cat.sup.status(); !server.declares(skillsExtension) {
		return nil, nil, nil
	}
	list, err := l.cat.skills.get(ctx, l.cat)
	if err != nil {
		return nil, nil, err
	}
	skills, problems := l.usable(list)
	return skills, problems, nil
}

// Known returns the skills of the last list, without a request to the server.
func (l *skillLoader) Known() []*skill.Skill {
	list, _ := l.cat.skills.cached()
	skills, _ := l.usable(list)
	return skills
}

// usable returns the skills that are valid and have not changed since they were allowed.
func (l *skillLoader) usable(list []*remoteSkill) (skills []*skill.Skill, problems []skill.Diagnostic) {
	changed := l.cat.changedSkills(list)
	seen := map[string]bool{}
	for _, s := range list {
		err, name := cmp.Or(s.invalid, changed[s.uri]), s.name(l.cat.cfg.name)
		if err == nil && seen[name] {
			err = fmt.Errorf("the server lists the skill %q twice; the first is used", name)
		}
		seen[name] = true
		if err != nil {
			problems = append(problems, skill.Diagnostic{File: s.path(l.cat.cfg.name), Rule: "loader", Severity: skill.SeverityError, Message: err.Error(), Fatal: true})
			continue
		}
		skills = append(skills, &skill.Skill{
			Name: name, Description: s.description, Path: s.path(l.cat.cfg.name),
			Origin: fmt.Sprintf("MCP server %q", l.cat.cfg.name), Remote: &skillFiles{s, l},
		})
	}
	slices.SortFunc(skills, func(a, b *skill.Skill) int { return cmp.Compare(a.Name, b.Name) })
	return skills, problems
}

// A remoteSkill is an entry of skills/list.
type remoteSkill struct {
	uri         string // of its SKILL.md
	description string
	frontMatter map[string]any
	files       []skill.ManifestFile // SKILL.md first
	uris        map[string]string    // of the files, by name
	definition  json.RawMessage      // canonical JSON for the skill's pin, with the digests of all files
	invalid     error                // why the skill cannot be used
}

// decodeSkill reads an entry of skills/list. It keeps every entry, and sets invalid if the skill cannot be used.
func decodeSkill(raw json.RawMessage) (*remoteSkill, bool) {
	var e struct {
		URI         string          `json:"uri"`
		FrontMatter json.RawMessage `json:"frontmatter"`
		Resources   json.RawMessage `json:"resources"`
	}
	if len(raw) > maxToolBytes {
		return &remoteSkill{invalid: fmt.Errorf("the entry has %d bytes; %d are allowed", len(raw), maxToolBytes)}, true
	}
	if err := strictjson.Unmarshal(raw, &e); err != nil {
		return &remoteSkill{invalid: fmt.Errorf("the entry cannot be read: %w", err)}, true
	}
	s := &remoteSkill{uri: e.URI}
	s.invalid = cmp.Or(s.readFrontMatter(e.FrontMatter), s.readFiles(e.Resources))
	if s.invalid == nil {
		s.definition, s.invalid = json.Marshal(map[string]any{"uri": s.uri, "frontmatter": e.FrontMatter, "files": s.files})
		s.definition = strictjson.Canonical(s.definition)
	}
	return s, true
}

// skillURI matches the URI of a SKILL.md; the submatch is the skill's name.
var skillURI = lazy.Regexp(`^[a-z][a-z0-9+.-]*://(?:[^/?#\s]+/)*([a-z0-9]+(?:-[a-z0-9]+)*)/SKILL\.md$`)

// readFrontMatter checks the URI, and that the name in the front matter is the name in the URI.
func (s *remoteSkill) readFrontMatter(raw json.RawMessage) error {
	m := skillURI().FindStringSubmatch(s.uri)
	if m == nil || len(s.uri) > maxNameBytes || visible.Text(s.uri) != s.uri || hasDots(s.uri) {
		return fmt.Errorf("uri must end in the skill's name and /SKILL.md; it is %.100q", s.uri)
	}
	if err := json.Unmarshal(raw, &s.frontMatter); err != nil {
		return fmt.Errorf("frontmatter cannot be read: %w", err)
	}
	if s.frontMatter["name"] != m[1] || len(m[1]) > 64 { // the Agent Skills specification allows 64
		return fmt.Errorf("the name %.100q in the frontmatter is not the name in the uri, or is longer than 64 bytes", fmt.Sprint(s.frontMatter["name"]))
	}
	text, _ := s.frontMatter["description"].(string)
	if s.description = clip(strings.TrimSpace(visible.Text(text)), 4096); s.description == "" { // 1024 characters are allowed
		return errors.New("the frontmatter has no description")
	}
	return nil
}

// hasDots reports whether a URI has . or .. in its path, so that normalizing the URI would change what it names.
func hasDots(uri string) bool {
	path, err := url.PathUnescape(uri)
	return err != nil || slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}

var digestForm = lazy.Regexp(`^sha256:[0-9a-f]{64}$`)

func (s *remoteSkill) readFiles(raw json.RawMessage) error {
	if string(raw) == `"dynamic"` {
		return errors.New("the skill has no list of its files (dynamic), so its content could be anything")
	}
	var list []struct {
		URI    string `json:"uri"`
		Digest string `json:"digest"`
		Size   *int64 `json:"size"`
	}
	if err := strictjson.Unmarshal(raw, &list); err != nil || list == nil {
		return fmt.Errorf("resources must be a list of files or \"dynamic\"; it is %.40s", raw)
	}
	if len(list) > skill.MaxManifestFiles {
		return fmt.Errorf("the skill has %d files; %d are allowed", len(list), skill.MaxManifestFiles)
	}
	var total int64
	s.uris = map[string]string{}
	for _, f := range list {
		inside, ok := strings.CutPrefix(f.URI, strings.TrimSuffix(s.uri, skillFile))
		name, err := url.PathUnescape(inside)
		switch {
		case !ok || err != nil || strings.ContainsAny(inside, "?#") || !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) || visible.Text(name) != name:
			return fmt.Errorf("%.100q is not a file of the skill", f.URI)
		case s.uris[name] != "":
			return fmt.Errorf("the file %.100q is listed twice", name)
		case !digestForm().MatchString(f.Digest) || f.Size == nil || *f.Size < 0 || *f.Size > skill.MaxManifestBytes:
			return fmt.Errorf("the file %.100q has no valid digest and size", name)
		}
		if total += *f.Size; total > skill.MaxManifestBytes {
			return fmt.Errorf("the files of the skill have more than %d bytes", skill.MaxManifestBytes)
		}
		s.uris[name] = f.URI
		s.files = append(s.files, skill.ManifestFile{Name: name, Bytes: *f.Size, Digest: f.Digest})
	}
	if s.uris[skillFile] == "" {
		return errors.New("resources does not list SKILL.md")
	}
	slices.SortFunc(s.files, func(a, b skill.ManifestFile) int {
		switch skillFile { // comes first
		case a.Name:
			return -1
		case b.Name:
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return nil
}

// path names the skill in diagnostics.
func (s *remoteSkill) path(server string) string {
	return "MCP server " + strconv.Quote(server) + ": " + clip(visible.Text(s.uri), maxNameBytes)
}

// name returns the name for the model. It begins with the server's name, so no other server or user has a skill of this name.
func (s *remoteSkill) name(server string) string {
	scheme, path, _ := strings.Cut(strings.TrimSuffix(s.uri, "/"+skillFile), "://")
	if scheme != "skill" {
		path = scheme + ":" + path
	}
	return server + "/" + path
}

// pinKey returns the name of the skill's pin.
func (s *remoteSkill) pinKey() string { return "skill " + s.uri }

// errChanged returns the error for a skill that differs from the allowed definition.
func (s *remoteSkill) errChanged(server string, allowed json.RawMessage) error {
	return errChanged(fmt.Sprintf("MCP server %q: skill %q", server, s.uri), allowed, s.definition)
}

// changedSkills returns why skills are withheld, by URI, and stores the definitions of changed skills in their pins. It
// updates a copy of the pins first, and the stored pins only if the copy has changed.
func (c *catalogue) changedSkills(list []*remoteSkill) map[string]error {
	if c.cfg.Pins == nil || len(list) == 0 {
		return nil
	}
	reasons := map[string]error{}
	pinsChanged := false
	updatePins := func(pins map[string]Pin) {
		for _, s := range list {
			p, pinned := pinOf(pins, s.pinKey(), s.name(c.cfg.name), s.definition)
			if !pinned || s.invalid != nil {
				continue
			}
			if p = p.withCurrent(s.definition); p.Changed != nil {
				reasons[s.uri] = s.errChanged(c.cfg.name, p.Definition)
			}
			pinsChanged = pinsChanged || !bytes.Equal(pins[s.pinKey()].Changed, p.Changed)
			pins[s.pinKey()] = p
		}
	}
	pins, err := c.cfg.Pins.Load(c.cfg.name)
	if updatePins(maps.Clone(pins)); err == nil && pinsChanged {
		for _, reason := range reasons {
			slog.Warn("an MCP skill is withheld", "reason", reason)
		}
		err = c.cfg.Pins.Update(c.cfg.name, updatePins)
	}
	if err != nil {
		for _, s := range list {
			reasons[s.uri] = err
		}
	}
	return reasons
}

// skillFiles implements [skill.Remote].
type skillFiles struct {
	*remoteSkill
	loader *skillLoader
}

func (f *skillFiles) Manifest() []skill.ManifestFile { return slices.Clone(f.files) }

func (f *skillFiles) FrontMatter() map[string]any { return f.frontMatter }

// Read fetches a file of the manifest. The first Read pins the skill.
func (f *skillFiles) Read(ctx context.Context, name string) ([]byte, error) {
	cat := f.loader.cat
	i := slices.IndexFunc(f.files, func(m skill.ManifestFile) bool { return m.Name == name })
	if i < 0 {
		return nil, fs.ErrNotExist
	}
	if cat.cfg.Pins != nil {
		allowed, err := cat.pin(f.pinKey(), f.name(cat.cfg.name), f.definition, nil)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(allowed, f.definition) {
			cat.skills.markChanged() // the next list withholds the skill
			return nil, f.errChanged(cat.cfg.name, allowed)
		}
	}
	file := f.files[i]
	data, ok := cat.skillCache.get(file.Digest)
	if !ok {
		var err error
		if data, err = f.loader.runner.readBytes(ctx, f.uris[name]); err != nil {
			return nil, err
		}
		if int64(len(data)) != file.Bytes || skill.Digest(data) != file.Digest {
			cat.skills.markChanged() // the list may be outdated
			return nil, fmt.Errorf("MCP server %q: %s is not the file that the server listed, so it is not used; try again, since the list may be outdated", cat.cfg.name, f.uris[name])
		}
	}
	if name == skillFile {
		if fields, err := skill.FrontMatter(data); err != nil || !reflect.DeepEqual(fields, f.frontMatter) {
			return nil, fmt.Errorf("MCP server %q: the front matter of %s is not the one that the server listed, so the skill is not used", cat.cfg.name, f.uri)
		}
	}
	cat.skillCache.put(file.Digest, data)
	return bytes.Clone(data), nil
}

// readBytes returns the text or the bytes of a resource.
func (r *runner) readBytes(ctx context.Context, uri string) ([]byte, error) {
	raw, err := r.fetch(ctx, "resources/read", "resource "+strconv.Quote(uri), map[string]any{"uri": uri})
	if err != nil {
		return nil, err
	}
	var res struct {
		Contents []resourceContents `json:"contents"`
	}
	if err := strictjson.Unmarshal(raw, &res); err != nil || len(res.Contents) != 1 {
		return nil, r.cfg.serverError(nil, fmt.Errorf("%w: the result of resources/read must have one content", errMalformed))
	}
	if text := res.Contents[0].Text; text != nil {
		return []byte(*text), nil
	}
	return res.Contents[0].Blob, nil
}

// A fileCache keeps files by digest. A file with which it would exceed maxCachedBytes empties the cache first.
type fileCache struct {
	mu   sync.Mutex
	size int
	all  map[string][]byte
}

const maxCachedBytes = 16 << 20

func (b *fileCache) get(digest string) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.all[digest]
	return data, ok
}

func (b *fileCache) put(digest string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[digest] != nil {
		return
	}
	if b.size += len(data); b.all == nil || b.size > maxCachedBytes {
		b.all, b.size = map[string][]byte{}, len(data)
	}
	b.all[digest] = data
}
