// Project lets an agent write files below one directory, following a skill. Other paths need approval, which
// this program denies.
package main

import (
	"context"
	"embed"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/toolkit"
)

//go:embed skills
var skills embed.FS // skill.In loads them from disk

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "project-")
	if err != nil {
		log.Fatal(err)
	}
	err = work(context.Background(), dir)
	if err := os.RemoveAll(dir); err != nil {
		log.Print(err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func work(ctx context.Context, dir string) error {
	tools, err := builtin.New(builtin.Config{Dirs: []string{dir}})
	if err != nil {
		return err
	}
	kit, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: tools, Skills: []skill.Loader{skill.FS(skills)}}})
	if err != nil {
		return err
	}
	write := func(path string) scripted.Turn {
		return scripted.Call("Write", map[string]string{"file_path": path, "content": "We sold 12 pieces.\n"})
	}
	report := filepath.Join(dir, "report.md")
	a, err := agent.New(agent.Config{
		Model: scripted.New(
			scripted.Call("Skill", map[string]string{"skill": "house-style"}),
			write("/report.md"),
			write(report),
			scripted.Say("The report is in report.md."),
		),
		Toolkit: kit,
		Policy:  permission.Policy{Mode: permission.ModeAcceptEdits, Dirs: []string{dir}},
		Approve: func(_ context.Context, q event.Approval) (event.Confirm, error) {
			fmt.Printf("may %s run? %s: no\n", q.Name, q.Reason)
			return q.Deny("Stay in " + dir + "."), nil
		},
	})
	if err != nil {
		return err
	}
	task := fmt.Sprintf("We sold 12 pieces. Write that into a report in %s.", dir)
	for ev, err := range a.Run(ctx, &agent.State{}, agent.Say(task)) {
		if err != nil {
			return err
		}
		switch ev := ev.(type) {
		case *event.ToolResult:
			fmt.Println(ev.Name, ev.Outcome)
		case *event.End:
			fmt.Println(ev.Text)
		}
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return err
	}
	fmt.Printf("%s", text)
	return nil
}
