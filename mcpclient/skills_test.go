package mcpclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/skill"
)

// TestSkillEntries checks entries of skills/list against the rules of SEP-2640.
func TestSkillEntries(t *testing.T) {
	type row struct {
		Skill, Error string
		Entry        json.RawMessage
	}
	eachRow(t, "skills.jsonl", func(t *testing.T, r row) {
		s, _ := decodeSkill(r.Entry)
		switch {
		case r.Error != "" && (s.invalid == nil || !strings.Contains(s.invalid.Error(), r.Error)):
			t.Errorf("%v, want %q", s.invalid, r.Error)
		case r.Error == "" && (s.invalid != nil || s.name("docs") != r.Skill):
			t.Errorf("%q, %v; want %q", s.name("docs"), s.invalid, r.Skill)
		}
	})
}

// FuzzDecodeSkill checks that a skill that is used has no name, file or URI outside of its folder.
func FuzzDecodeSkill(f *testing.F) {
	f.Add(`{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a","description":"D"},"resources":[{"uri":"skill://a/SKILL.md","digest":"sha256:` + strings.Repeat("0", 64) + `","size":1}]}`)
	f.Fuzz(func(t *testing.T, entry string) {
		s, _ := decodeSkill([]byte(entry))
		if s.invalid != nil {
			return
		}
		for name, uri := range s.uris {
			if strings.HasPrefix(name, "/") || slices.Contains(strings.Split(name, "/"), "..") || !strings.HasPrefix(uri, strings.TrimSuffix(s.uri, skillFile)) {
				t.Errorf("%q at %q", name, uri)
			}
		}
	})
}

// A skillServer serves one skill.
type skillServer struct {
	mu     sync.Mutex
	text   string            // of SKILL.md
	guide  string            // of references/guide.md
	sent   map[string]string // what is sent instead of the content, by URI
	listed map[string]any    // the frontmatter in the list
	calls  []string
	say    func(string)
}

const skillBase = "skill://acme/refunds/"

func newSkillServer() *skillServer {
	return &skillServer{text: "---\nname: refunds\ndescription: Refunds. Use when asked.\nallowed-tools: Bash\nmetadata:\n  version: 1.10\n---\n\n# Refunds\n\nPay.\u200b\n",
		guide: "The guide.", sent: map[string]string{},
		listed: map[string]any{"name": "refunds", "description": "Refunds. Use when asked.", "allowed-tools": "Bash", "metadata": map[string]any{"version": 1.1}}}
}

func (s *skillServer) script(msg request, reply func(string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p struct{ URI string }
	_ = json.Unmarshal(msg.Params, &p)
	switch msg.Method {
	case "initialize":
		s.say = reply
		reply(msg.result(`{"protocolVersion":"2025-11-25","capabilities":{"resources":{"listChanged":true},"extensions":{"io.modelcontextprotocol/skills":{}}},"serverInfo":{"name":"s","version":"1"}}`))
	case "skills/list":
		s.calls = append(s.calls, "list")
		entry := func(uri, text string) map[string]any {
			return map[string]any{"uri": skillBase + uri, "digest": skill.Digest([]byte(text)), "size": len(text)}
		}
		list, _ := json.Marshal(map[string]any{"skills": []any{map[string]any{"uri": skillBase + "SKILL.md", "frontmatter": s.listed,
			"resources": []any{entry("references/guide.md", s.guide), entry("SKILL.md", s.text)}}}})
		reply(msg.result(string(list)))
	case "resources/read":
		s.calls = append(s.calls, strings.TrimPrefix(p.URI, skillBase))
		text, changed := s.sent[p.URI]
		if !changed {
			text = map[string]string{skillBase + "SKILL.md": s.text, skillBase + "references/guide.md": s.guide}[p.URI]
		}
		raw, _ := json.Marshal(text)
		reply(msg.result(fmt.Sprintf(`{"contents":[{"uri":%q,"text":%s}]}`, p.URI, raw)))
	default:
		if !handleStandard(msg, reply, `[]`) && msg.ID != nil {
			reply(msg.fail(codeMethodNotFound, "no"))
		}
	}
}

// change changes what the server has, and announces it.
func (s *skillServer) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()
	s.say(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
	time.Sleep(time.Minute)
}

func (s *skillServer) takeCalls() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.calls = nil }()
	return strings.Join(s.calls, " ")
}

// view loads the skills and views one, as the tool Skill does.
func view(t *testing.T, c *Client, file string) (string, error) {
	t.Helper()
	if _, err := c.Tools(t.Context()); err != nil {
		t.Fatal(err)
	}
	skills, problems, err := c.Skills().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page, err := skill.View(t.Context(), skills, skill.Query{Skill: "srv/acme/refunds", File: file})
	if err != nil {
		return fmt.Sprint(problems), err
	}
	return page.Text, nil
}

// TestSkillIsFetchedWhenOpened checks that nothing is fetched before it is read, that it is fetched once, and what the
// model reads: where the skill is from, and no characters that people do not see.
func TestSkillIsFetchedWhenOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSkillServer()
		c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, s.script)
		if before, _, err := c.Skills().Load(t.Context()); err != nil || len(before) != 0 || c.Status().State != stateIdle {
			t.Errorf("the server is started for its skills: %v %v", before, err)
		}
		if _, err := c.Tools(t.Context()); err != nil {
			t.Fatal(err)
		}
		skills, problems, err := c.Skills().Load(t.Context())
		if err != nil || len(skills) != 1 || len(problems) != 0 {
			t.Fatal(skills, problems, err)
		}
		if got := skill.Fragment(skills, 0); !strings.Contains(got, `<skill name="srv/acme/refunds" from="MCP server &quot;srv&quot;">Refunds. Use when asked.</skill>`) {
			t.Error(got)
		}
		if got := s.takeCalls(); got != "list" {
			t.Errorf("after Load: %s", got)
		}
		for range 2 {
			text, err := view(t, c, "")
			if err != nil || !strings.HasPrefix(text, `This text is from the MCP server "srv", not from the user.`) || !strings.Contains(text, "\nPay.\n") || !strings.Contains(text, "references/guide.md (10 bytes)") {
				t.Error(text, err)
			}
			if text, err := view(t, c, "references/guide.md"); err != nil || !strings.HasSuffix(text, "\n\nThe guide.") {
				t.Error(text, err)
			}
		}
		page, err := skill.View(t.Context(), skills, skill.Query{Skill: "srv/acme/refunds"})
		if err != nil || page.Skill.AllowedTools != nil || page.Skill.Dir != "" || page.Skill.Metadata["version"] != "1.10" {
			t.Errorf("%+v %v", page, err)
		}
		if _, err := view(t, c, "../other/SKILL.md"); err == nil {
			t.Error("a file outside of the skill was read")
		}
		if got := s.takeCalls(); got != "SKILL.md references/guide.md" {
			t.Errorf("read: %s", got)
		}
		if known := c.Skills().(*skillLoader).Known(); len(known) != 1 {
			t.Errorf("%d skills are known", len(known))
		}
	})
}

// TestSkillIsWhatWasListed checks that no content is used that is not the listed one.
func TestSkillIsWhatWasListed(t *testing.T) {
	for _, row := range []struct {
		name, file string
		change     func(*skillServer)
		want       string
	}{
		{"another text", "", func(s *skillServer) { s.sent[skillBase+"SKILL.md"] = strings.Replace(s.text, "Pay", "Pox", 1) }, "is not the file that the server listed"},
		{"a longer text", "", func(s *skillServer) { s.sent[skillBase+"SKILL.md"] = s.text + "\n" }, "is not the file that the server listed"},
		{"no text", "", func(s *skillServer) { s.sent[skillBase+"SKILL.md"] = "" }, "is not the file that the server listed"},
		{"another file", "references/guide.md", func(s *skillServer) { s.sent[skillBase+"references/guide.md"] = "The guise." }, "is not the file that the server listed"},
		{"another description", "", func(s *skillServer) { s.listed["description"] = "Harmless." }, "front matter"},
		{"a field less", "", func(s *skillServer) { delete(s.listed, "allowed-tools") }, "front matter"},
		{"a field more", "", func(s *skillServer) { s.listed["license"] = "MIT" }, "front matter"},
		{"no front matter", "", func(s *skillServer) { s.text = "# Refunds\n" }, "front matter"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSkillServer()
				row.change(s)
				c := memoryClient(t, Server{Options: Options{PingInterval: -1}}, s.script)
				for range 2 { // the content must not be kept either
					if text, err := view(t, c, row.file); err == nil || !strings.Contains(err.Error(), row.want) {
						t.Errorf("%q %v", text, err)
					}
				}
			})
		})
	}
}

// TestChangedSkillIsHeldBack checks that a skill that was read and then changed in one byte is withheld until the user
// accepts it, whether the server announces the change or not, and that another skill's pin does not count.
func TestChangedSkillIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pins := newSkillServer(), &memoryPins{}
		c := memoryClient(t, Server{Options: Options{PingInterval: -1, Pins: pins}}, s.script)
		if _, err := view(t, c, ""); err != nil {
			t.Fatal(err)
		}
		old, _, _ := c.Skills().Load(t.Context())
		key := "skill " + skillBase + "SKILL.md"
		if got := slices.Collect(maps.Keys(pins.pins)); !slices.Equal(got, []string{key}) {
			t.Fatalf("pins %q", got)
		}
		s.change(func() { s.guide = "The guidE." })
		text, err := view(t, c, "references/guide.md")
		if nf, ok := errors.AsType[*skill.NotFoundError](err); !ok || nf.Kind != "skill" || !strings.Contains(text, ErrChanged.Error()) || !strings.Contains(text, `["files"]`) {
			t.Errorf("%q %v", text, err)
		}
		if _, err := skill.View(t.Context(), old, skill.Query{Skill: "srv/acme/refunds", File: "references/guide.md"}); err == nil {
			t.Error("the changed file is read through the old list")
		}
		if diff := pins.pins[key].Diff(); !strings.Contains(diff, skill.Digest([]byte("The guidE."))) {
			t.Errorf("diff %q", diff)
		}
		_ = pins.Update("srv", func(all map[string]Pin) { all[key] = all[key].Accept() })
		if text, err := view(t, c, "references/guide.md"); err != nil || !strings.HasSuffix(text, "The guidE.") {
			t.Errorf("%q %v", text, err)
		}
		// The list that the model was shown is old, and the user has accepted the new one.
		if _, err := skill.View(t.Context(), old, skill.Query{Skill: "srv/acme/refunds"}); !errors.Is(err, ErrChanged) {
			t.Errorf("the old list is used: %v", err)
		}
		pins.pins = nil
		c.cfg.Pins = brokenPins{errors.New("unreadable")}
		if text, err := view(t, c, ""); err == nil || !strings.Contains(text, "unreadable") {
			t.Errorf("a skill is used without its pins: %q %v", text, err)
		}
	})
}

// TestSkillNamesAreUnique checks that a server cannot give a skill the name of another one, or of one that the user has
// allowed before, by another URI.
func TestSkillNamesAreUnique(t *testing.T) {
	pins := &memoryPins{}
	c := memoryClient(t, Server{Options: Options{PingInterval: -1, Pins: pins}}, newSkillServer().script)
	entry := func(uri string) *remoteSkill {
		s, _ := decodeSkill([]byte(`{"uri":"` + uri + `","frontmatter":{"name":"a","description":"D"},"resources":[{"uri":"` + uri + `","digest":"sha256:` + strings.Repeat("0", 64) + `","size":1}]}`))
		return s
	}
	first, second := entry("skill://https:acme/a/SKILL.md"), entry("https://acme/a/SKILL.md")
	loader := &skillLoader{c.cat, c.runner}
	if skills, problems := loader.usable([]*remoteSkill{first, second}); len(skills) != 1 || len(problems) != 1 || !strings.Contains(problems[0].Message, "twice") {
		t.Errorf("both in a list: %d skills, %v", len(skills), problems)
	}
	_ = pins.Update("srv", func(all map[string]Pin) {
		all[first.pinKey()] = Pin{Definition: first.definition, As: first.name("srv")}
	})
	if skills, problems := loader.usable([]*remoteSkill{second}); len(skills) != 0 || len(problems) != 1 || !strings.Contains(problems[0].Message, ErrChanged.Error()) {
		t.Errorf("after the first was allowed: %d skills, %v", len(skills), problems)
	}
	_ = pins.Update("srv", func(all map[string]Pin) { all[second.pinKey()] = all[second.pinKey()].Accept() })
	if skills, problems := loader.usable([]*remoteSkill{second}); len(skills) != 1 {
		t.Errorf("after the second was allowed: %v", problems)
	}
}
