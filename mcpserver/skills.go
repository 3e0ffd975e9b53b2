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
// the skills that the tool Skill would show to it.
const (
	skillsExtension = "io.modelcontextprotocol/skills"

	skillScheme = "skill"
	skillFile   = "SKILL.md"
	skillTool   = "Skill" // its rules decide whether skills can be read
)

// A groupSkill is a skill with its group, which is empty for the basic group.
type groupSkill struct {
	*skill.Skill
	group string
}

// readsSkills reports whether the policy allows the tool Skill, a control tool that changes nothing,
// to run without asking.
func (c *client) readsSkills() bool {
	view := &permission.Call{Tool: skillTool, Input: json.RawMessage("{}"), Control: true, ReadOnly: true}
	return permission.Decide(c.policy(), view).Behavior == permission.Allow
}

// skills returns the skills that the client sees, except skills that cannot be loaded. There are none if the
// policy does not allow the tool Skill, so that resources do not bypass the policy.
func (r *request) skills(ctx context.Context) []groupSkill {
	if !r.readsSkills() {
		return nil
	}
	found, groups, err := r.tk.Skills(ctx, r.scope)
	if err != nil {
		slog.WarnContext(ctx, "some skills cannot be served", "error", err)
	}
	all := make([]groupSkill, len(found))
	for i, s := range found {
		all[i] = groupSkill{s, groups[i]}
	}
	return all
}

func (s groupSkill) groups() []string {
	if s.group == "" {
		return nil
	}
	return []string{s.group}
}

// entry returns the skill as skills/list and skills/get do. It fails for a skill that clients would refuse: one that
// breaks the specification of skills, or is too large.
func (s groupSkill) entry(ctx context.Context) (object, error) {
	var fields map[string]any
	if s.Remote != nil {
		fields = s.Remote.FrontMatter()
	} else {
		text, err := s.Read(ctx, skillFile)
		if err == nil {
			fields, err = skill.FrontMatter(text)
		}
		if err != nil {
			return nil, err
		}
	}
	if name := path.Base(s.Name); fields["name"] != name || !legalName().MatchString(name) || len(name) > 64 {
		return nil, fmt.Errorf("the name in the front matter is %q; it must be %q, with at most 64 lowercase letters, digits and hyphens", fields["name"], name)
	}
	files, err := s.Manifest()
	if err != nil {
		return nil, err
	}
	resources := make([]object, len(files))
	for i, f := range files {
		resources[i] = object{"uri": s.uri(f.Name), "digest": f.Digest, "size": f.Bytes}
	}
	return labelled(object{"uri": s.uri(skillFile), "frontmatter": fields, "resources": resources}, s.groups()), nil
}

// legalName matches the names that the specification of skills allows.
var legalName = lazy.Regexp(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// listSkills handles skills/list.
func (r *request) listSkills(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, s := range r.skills(ctx) {
		o, err := s.entry(ctx)
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
	uri, bad := r.uri()
	if bad != nil {
		return nil, bad
	}
	for _, s := range r.skills(ctx) {
		if s.uri(skillFile) == uri {
			o, err := s.entry(ctx)
			if err != nil {
				return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "skill %q: %v", uri, err)
			}
			return object{"skill": o}, nil
		}
	}
	return nil, rpc.Errorf(mcp.INVALID_PARAMS, "no skill is served at %q", uri)
}

// resources returns the list entries of the skill's files, SKILL.md first.
func (s groupSkill) resources() []object {
	all := []object{labelled(object{"uri": s.uri(skillFile), "name": s.Name, "description": s.Description,
		"mimeType": mediaType(skillFile)}, s.groups())}
	files, err := s.Files()
	if err != nil {
		return all // a skill that is not in a directory has no files
	}
	for _, f := range files {
		o := object{"uri": s.uri(f.Name), "name": s.Name + "/" + f.Name, "size": f.Bytes}
		if kind := mediaType(f.Name); kind != "" {
			o["mimeType"] = kind
		}
		all = append(all, labelled(o, s.groups()))
	}
	return all
}

// uri returns the URI of a file. Each file has only one URI, so that only the listed URIs can be read.
func (s groupSkill) uri(file string) string {
	u := url.URL{Path: "/" + s.Name + "/" + file}
	return skillScheme + ":/" + u.EscapedPath()
}

// mediaType returns the media type of a file by its name, or "" if it is detected from the content. It does not
// use the machine's table of media types, so that the result is the same on all machines.
func mediaType(file string) string {
	switch path.Ext(file) {
	case ".md":
		return "text/markdown"
	case ".json":
		return "application/json"
	}
	return ""
}

// readSkill returns the content and the media type of a file of a skill that the client sees.
func (r *request) readSkill(ctx context.Context, uri string) ([]byte, string, error) {
	if !strings.HasPrefix(uri, skillScheme+"://") {
		return nil, "", fs.ErrNotExist
	}
	for _, s := range r.skills(ctx) {
		if !strings.HasPrefix(uri, s.uri("")) {
			continue
		}
		// The client's file name is compared with the listed ones and never opened.
		files, _ := s.Files() // a skill that is not in a directory has no files
		for _, f := range append([]skill.File{{Name: skillFile}}, files...) {
			if uri == s.uri(f.Name) {
				data, err := s.Read(ctx, f.Name)
				return data, mediaType(f.Name), err
			}
		}
	}
	return nil, "", fs.ErrNotExist
}
