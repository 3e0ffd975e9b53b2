package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"path"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
)

// The skills of the toolkit are served as MCP's skills extension (SEP-2640) says: skills/list and skills/get return
// manifests with digests, and the files are resources with URIs such as skill://pdf/references/forms.md. A client sees
// the skills that it could read with the tool Skill.
const (
	skillsExtension = "io.modelcontextprotocol/skills"

	skillScheme = "skill"
	skillFile   = "SKILL.md"
	skillTool   = "Skill" // its rules decide whether skills can be read
)

// A servedSkill is a skill with the group that labels it; a skill of the basic group has no labels.
type servedSkill struct {
	*skill.Skill
	labels []string
}

// mayReadSkills reports whether the policy allows the tool Skill, a read-only control tool, to run without asking.
func (c *client) mayReadSkills() bool {
	call := &permission.Call{Tool: skillTool, Input: json.RawMessage("{}"), Control: true, ReadOnly: true}
	return permission.Decide(c.policy(), call).Behavior == permission.Allow
}

// skills returns the skills that the client sees, except skills that cannot be loaded. If the policy does not allow the tool
// Skill, the client sees no skills, so that it cannot bypass the policy by reading resources.
func (r *request) skills(ctx context.Context) []servedSkill {
	if !r.mayReadSkills() {
		return nil
	}
	skills, groups, err := r.tk.Skills(ctx, r.scope)
	if err != nil {
		slog.WarnContext(ctx, "some skills cannot be served", "error", err)
	}
	all := make([]servedSkill, len(skills))
	for i, s := range skills {
		all[i].Skill = s
		if groups[i] != "" {
			all[i].labels = groups[i : i+1]
		}
	}
	return all
}

// describe returns the skill's object in the results of skills/list and skills/get. It fails for a skill that clients would
// refuse: a skill that does not conform to the specification of skills, or is too large.
func (s servedSkill) describe(ctx context.Context) (object, error) {
	var frontMatter map[string]any
	if s.Remote != nil {
		frontMatter = s.Remote.FrontMatter()
	} else {
		text, err := s.Read(ctx, skillFile)
		if err == nil {
			frontMatter, err = skill.FrontMatter(text)
		}
		if err != nil {
			return nil, err
		}
	}
	// The specification of skills requires that the name is that of the directory.
	if name := path.Base(s.Name); frontMatter["name"] != name || !legalName().MatchString(name) || len(name) > 64 {
		return nil, fmt.Errorf("the name in the front matter is %q; it must be %q, with at most 64 lowercase letters, digits and hyphens", frontMatter["name"], name)
	}
	files, err := s.Manifest()
	if err != nil {
		return nil, err
	}
	resources := make([]object, len(files))
	for i, f := range files {
		resources[i] = object{"uri": s.uri(f.Name), "digest": f.Digest, "size": f.Bytes}
	}
	return labelled(object{"uri": s.uri(skillFile), "frontmatter": frontMatter, "resources": resources}, s.labels), nil
}

// legalName matches the names that the specification of skills allows, which are at most 64 characters long.
var legalName = lazy.Regexp(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// listSkills handles skills/list.
func (r *request) listSkills(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, s := range r.skills(ctx) {
		o, err := s.describe(ctx)
		if err != nil {
			slog.WarnContext(ctx, "a skill cannot be served", "skill", s.Name, "error", err)
			continue
		}
		all = append(all, entry{s.uri(skillFile), o})
	}
	return requestedPage(r, "skills", all)
}

// getSkill handles skills/get.
func (r *request) getSkill(ctx context.Context) (any, *rpc.Error) {
	uri, rpcErr := r.uri()
	if rpcErr != nil {
		return nil, rpcErr
	}
	for _, s := range r.skills(ctx) {
		if s.uri(skillFile) == uri {
			o, err := s.describe(ctx)
			if err != nil {
				return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "skill %q: %v", uri, err)
			}
			return object{"skill": o}, nil
		}
	}
	return nil, rpc.Errorf(mcp.INVALID_PARAMS, "no skill is served at %q", uri)
}

// fileEntries returns the entries of the skill's files in resources/list, SKILL.md first.
func (s servedSkill) fileEntries() []entry {
	all := []entry{{s.uri(skillFile), labelled(object{"uri": s.uri(skillFile), "name": s.Name, "description": s.Description,
		"mimeType": mediaTypeOf(skillFile)}, s.labels)}}
	files, _ := s.Files() // fails for a skill that is not in a directory, which has no other files
	for _, f := range files {
		o := object{"uri": s.uri(f.Name), "name": s.Name + "/" + f.Name, "size": f.Bytes}
		if mediaType := mediaTypeOf(f.Name); mediaType != "" {
			o["mimeType"] = mediaType
		}
		all = append(all, entry{s.uri(f.Name), labelled(o, s.labels)})
	}
	return all
}

// uri returns the URI of a file, or of the skill's directory if file is empty. Each file has only one URI.
func (s servedSkill) uri(file string) string {
	u := url.URL{Path: "/" + s.Name + "/" + file}
	return skillScheme + ":/" + u.EscapedPath()
}

// mediaTypeOf returns the media type for the name of a file, or "" for contentsOf to detect the type from the content. It does
// not use the machine's table of media types, so that the result is the same on all machines.
func mediaTypeOf(file string) string {
	switch path.Ext(file) {
	case ".md":
		return "text/markdown"
	case ".json":
		return "application/json"
	}
	return ""
}

// readSkill returns the content and the media type of a file of a skill that the client sees.
func (r *request) readSkill(ctx context.Context, uri string) (data []byte, mediaType string, err error) {
	if !strings.HasPrefix(uri, skillScheme+"://") {
		return nil, "", fs.ErrNotExist
	}
	for _, s := range r.skills(ctx) {
		if !strings.HasPrefix(uri, s.uri("")) {
			continue
		}
		// The client's file name is compared with the listed ones and never opened.
		files, _ := s.Files() // fails for a skill that is not in a directory
		for _, f := range append([]skill.File{{Name: skillFile}}, files...) {
			if uri == s.uri(f.Name) {
				data, err := s.Read(ctx, f.Name)
				return data, mediaTypeOf(f.Name), err
			}
		}
	}
	return nil, "", fs.ErrNotExist
}
