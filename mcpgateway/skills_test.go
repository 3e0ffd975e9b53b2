package mcpgateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/skill"
)

// skillsEnv is the folder of the skills of an upstream server.
const skillsEnv = "KITBAG_MCPGATEWAY_TEST_SKILLS"

// TestSkillsPassThrough checks, in both eras, that a host gets the skills of a server process through the gateway as
// they are on disk, only from open groups, and that a changed byte is held back until the user accepts it.
func TestSkillsPassThrough(t *testing.T) {
	for _, row := range []struct{ protocol, open, input string }{
		{"2025-11-25", "reset_tools", `{"docs":true}`},
		{"2026-07-28", "search_tools", `{"query":"echo"}`}, // starts the servers
	} {
		t.Run(row.protocol, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				t.Helper()
				path := filepath.Join(dir, "refunds", name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("SKILL.md", "---\nname: refunds\ndescription: Refunds. Use when asked.\nmetadata: {version: 1.10}\n---\n\nPay.\n")
			write("references/a b.md", "A\u200b.")
			write("scripts/x", "x\x00\xff")
			pins := mcpclient.PinFile(filepath.Join(t.TempDir(), "pins.json"))
			docs := process(t, "docs")
			docs.Transport.(mcpclient.Command).Env[skillsEnv] = dir
			docs.Options.Pins = pins
			g := newGateway(t, mcpgateway.Config{Servers: []mcpclient.Server{docs, process(t, "other")}})
			h := newHost(t, g, func(cfg *mcpclient.Server) { cfg.Options.Protocol = row.protocol })
			load := func(want int) []*skill.Skill {
				t.Helper()
				for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
					fresh := newHost(t, g, func(cfg *mcpclient.Server) { cfg.Options.Protocol = row.protocol })
					if want > 0 {
						call(t, fresh, row.open, row.input)
					}
					skills, problems, err := fresh.Skills().Load(t.Context())
					if err != nil || len(problems) > 0 {
						t.Fatal(problems, err)
					}
					if len(skills) == want || time.Now().After(end) {
						if len(skills) != want {
							t.Fatalf("%d skills, want %d", len(skills), want)
						}
						return skills
					}
				}
			}
			load(0) // no server runs
			call(t, h, row.open, row.input)
			s := load(1)[0]
			if s.Name != "g/docs/refunds" || s.Description != "Refunds. Use when asked." {
				t.Errorf("%q: %q", s.Name, s.Description)
			}
			for _, name := range []string{"SKILL.md", "references/a b.md"} {
				want, _ := os.ReadFile(filepath.Join(dir, "refunds", name))
				if got, err := s.Read(t.Context(), name); err != nil || string(got) != string(want) {
					t.Errorf("%s: %q, %v", name, got, err)
				}
			}
			if all, err := pins.All(); err != nil || len(all["docs"]) != 1 {
				t.Errorf("pins %v, %v", all, err)
			}
			write("scripts/x", "y\x00\xff")
			if got, err := s.Read(t.Context(), "scripts/x"); err == nil || !strings.Contains(err.Error(), "not the file that the server listed") {
				t.Errorf("a changed file: %q, %v", got, err)
			}
			if skills, _, _ := h.Skills().Load(t.Context()); len(skills) != 0 {
				t.Errorf("the changed skill is offered")
			}
			if err := pins.Update("docs", func(all map[string]mcpclient.Pin) {
				for name, p := range all {
					all[name] = p.Accept()
				}
			}); err != nil {
				t.Fatal(err)
			}
			if got, err := load(1)[0].Read(t.Context(), "scripts/x"); err != nil || string(got) != "y\x00\xff" {
				t.Errorf("the accepted file: %q, %v", got, err)
			}
		})
	}
}
