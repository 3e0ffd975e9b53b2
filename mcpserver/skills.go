package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
)

// The skills of the toolkit are served as prompts, and their files as resources with URIs such as
// skill://pdf/SKILL.md and skill://pdf/references/forms.md. A client sees the skills that the tool Skill would
// show to it.
const (
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
// policy does not allow the tool Skill, so that prompts do not bypass the policy.
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

// prompt returns the skill as a prompt.
func (s groupSkill) prompt() Prompt {
	return Prompt{Name: s.Name, Description: s.Description, Groups: s.groups(),
		Get: func(context.Context, map[string]string) ([]*message.Message, error) {
			text := s.Body
			if files, err := s.Files(); err == nil && len(files) > 0 {
				text += fmt.Sprintf("\n\nThe files of this skill are resources, such as %s.", s.uri(files[0].Name))
			}
			return []*message.Message{message.User(text)}, nil
		}}
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
	u := url.URL{Path: file}
	return skillScheme + "://" + url.PathEscape(s.Name) + "/" + strings.TrimPrefix(u.EscapedPath(), "/")
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
		if uri == s.uri(skillFile) {
			return s.source(), mediaType(skillFile), nil
		}
		if !strings.HasPrefix(uri, s.uri("")) {
			continue
		}
		// The client's file name is compared with the listed ones and never opened.
		files, err := s.Files()
		if err != nil {
			return nil, "", fs.ErrNotExist
		}
		if i := slices.IndexFunc(files, func(f skill.File) bool { return uri == s.uri(f.Name) }); i >= 0 {
			data, err := s.ReadFile(files[i].Name)
			return data, mediaType(files[i].Name), err
		}
	}
	return nil, "", fs.ErrNotExist
}

// source returns SKILL.md: the content of the file, or an equivalent for a skill that was not read from a file.
func (s groupSkill) source() []byte {
	if s.Path != "" {
		if data, err := s.ReadFile(path.Base(strings.ReplaceAll(s.Path, `\`, "/"))); err == nil {
			return data
		}
	}
	return fmt.Appendf(nil, "---\nname: %s\ndescription: %s\n---\n\n%s", strconv.Quote(s.Name), strconv.Quote(s.Description), s.Body)
}
