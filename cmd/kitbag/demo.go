package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

//go:embed demo
var demoFiles embed.FS

// demoTask is the user's task. It needs all features that the demo shows.
const demoTask = "How much did we sell in Lisbon this week? Write it into report.md, with the weather there."

// demoCommand is the first command for new users, so it needs neither a key nor a network.
func demoCommand() *cobra.Command {
	var jsonEvents, ask bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch an agent work, without a key",
		Long: `Watch an agent work in a temporary directory: it opens a tool group, calls
function tools, reads a skill, calls a tool of an MCP server, asks a
question, gets the answer, and finishes.

Only the model's words are scripted. Every tool call, file, process and MCP
message is real.`,
		Example: "  kitbag demo\n  kitbag demo --ask     answer the question yourself\n  kitbag demo --json    one event per line",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDemo(cmd, jsonEvents, ask) },
	}
	cmd.Flags().BoolVar(&jsonEvents, "json", false, "print one event per line as JSON")
	cmd.Flags().BoolVar(&ask, "ask", false, "ask you instead of answering yes automatically")
	return cmd
}

func runDemo(cmd *cobra.Command, jsonEvents, ask bool) (err error) {
	dir, err := tempDir("kitbag-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// The temporary directory is a link on some systems, and rules compare real paths.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	files, err := fs.Sub(demoFiles, "demo")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	// The demo's MCP server is this program, so that nothing has to be installed.
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server, err := mcpclient.New("demo", mcpclient.Command{Path: self, Args: []string{"mcp", "serve", "--demo"}}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	a, err := demoAgent(dir, server)
	if err != nil {
		return err
	}
	r := newRunner(cmd, jsonEvents)
	if ask && r.prompt == nil {
		return usage("--ask needs a terminal, and cannot be combined with --json")
	}
	if !ask {
		// Without a prompt the question is shown as an event, and answered by r.answer.
		r.prompt, r.painter.hasPrompt = nil, false
		r.answer = func(q *event.Approval) event.Confirm { return q.Allow() }
	}
	fmt.Fprintf(r.log, "The model's words are scripted; every tool call, file, process and MCP message is real.\nWorkspace: %s\n\n> %s\n\n", dir, demoTask)
	if err := r.run(cmd.Context(), a, newConversation(), []agent.Input{agent.Say(demoTask)}); err != nil {
		return err
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && ask {
			return nil // the user has refused to write it
		}
		return err
	}
	fmt.Fprintf(r.log, "\nreport.md on disk:\n%s", report)
	return nil
}

// demoAgent returns the demo's agent. Its policy does not allow writing, so that the demo shows a question.
func demoAgent(dir string, server tool.Source) (*agent.Agent, error) {
	tools, err := builtin.New(builtin.Config{Dirs: []string{dir}, PDF: pdfReader})
	if err != nil {
		return nil, err
	}
	sales, err := salesTools(filepath.Join(dir, "sales.csv"))
	if err != nil {
		return nil, err
	}
	tk, err := toolkit.New(toolkit.Config{
		Basic: toolkit.Group{Tools: tools, Sources: []tool.Source{server},
			Skills: []skill.Loader{skill.In(filepath.Join(dir, "skills"))}},
		Groups: []toolkit.Group{{Name: "sales", Description: "Figures of what the shops sold.",
			Instructions: "All amounts are in euros.", Tools: sales}},
		Control: toolkit.ResetTools(nil),
	})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Model:        scripted.New(demoScript()...),
		Toolkit:      tk,
		Instructions: "You work for a company that runs coffee shops.",
		Policy: permission.Policy{Dirs: []string{dir}, Rules: []permission.Rule{
			{Tool: "sales_*", Behavior: permission.Allow, Source: "demo"},
			{Tool: "mcp__demo__weather_lookup", Behavior: permission.Allow, Source: "demo"},
		}},
	})
}

// demoScript returns the model's script. Its answers contain the real results of the tools.
func demoScript() []scripted.Turn {
	return []scripted.Turn{
		scripted.Say("I need the sales tools for that.").And(scripted.Call("reset_tools", map[string]bool{"sales": true})),
		scripted.Call("sales_cities", nil).And(scripted.Call("sales_total", cityIn{"Lisbon"})),
		scripted.Say("Let me see how reports are written here.").And(scripted.Call("Skill", map[string]string{"skill": "house-style"})),
		scripted.Call("mcp__demo__weather_lookup", cityIn{"Lisbon"}),
		scripted.Func(func(req *model.Request) (scripted.Turn, error) {
			total, weather, err := demoFindings(req)
			text := fmt.Sprintf("# Lisbon this week\n\nWe sold goods for €%d.\nThe weather: %s.\n", total, weather)
			return scripted.Call("Bash", map[string]string{
				"command":     "cat > report.md <<'EOF'\n" + text + "EOF",
				"description": "Write the report",
			}), err
		}),
		scripted.Call("Bash", map[string]string{"command": "wc -l report.md"}),
		scripted.Func(func(req *model.Request) (scripted.Turn, error) {
			total, _, err := demoFindings(req)
			if refusedCall(req) {
				return scripted.Say(fmt.Sprintf("We sold goods for €%d in Lisbon this week. I was not allowed to write it down.", total)), err
			}
			return scripted.Say(fmt.Sprintf("We sold goods for €%d in Lisbon this week. It is in report.md.", total)), err
		}),
	}
}

// refusedCall reports whether the user has refused one of the calls.
func refusedCall(req *model.Request) bool {
	return slices.ContainsFunc(req.Messages, func(m *message.Message) bool {
		return slices.ContainsFunc(m.ToolResults(), func(r *message.ToolResult) bool { return r.Outcome == message.OutcomeDenied })
	})
}

// demoFindings returns what the tools have returned so far about Lisbon.
func demoFindings(req *model.Request) (total int, weather string, err error) {
	for _, m := range req.Messages {
		for _, res := range m.ToolResults() {
			switch {
			case res.Outcome != message.OutcomeSuccess:
			case res.Name == "sales_total":
				err = errors.Join(err, json.Unmarshal([]byte(res.Text()), &total))
			case res.Name == "mcp__demo__weather_lookup":
				var w struct {
					Celsius int `json:"temperature_c"`
					Sky     string
				}
				err = errors.Join(err, json.Unmarshal([]byte(res.Text()), &w))
				weather = fmt.Sprintf("%d °C, %s", w.Celsius, w.Sky)
			}
		}
	}
	return total, weather, err
}

// A cityIn is the input of the tools about a city.
type cityIn struct {
	City string `json:"city" jsonschema_description:"the city, such as Lisbon"`
}

func salesTools(path string) ([]tool.Tool, error) {
	opts := tool.Options{ReadOnly: true, Parallel: true}
	total, err := tool.New("sales_total", "Returns what was sold in a city this week, in euros.",
		func(_ context.Context, in cityIn) (int, error) {
			_, euros, err := readSales(path)
			sum, found := euros[in.City]
			if err == nil && !found {
				err = fmt.Errorf("nothing was sold in %q; sales_cities lists the cities", in.City)
			}
			return sum, err
		}, opts)
	if err != nil {
		return nil, err
	}
	cities, err := tool.New("sales_cities", "Lists the cities in which something was sold this week.",
		func(context.Context, struct{}) ([]string, error) {
			names, _, err := readSales(path)
			return names, err
		}, opts)
	return []tool.Tool{cities, total}, err
}

// readSales returns the cities in the file, and the sum of euros by city. The columns are day, city, product and euros.
func readSales(path string) (cities []string, euros map[string]int, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		return nil, nil, err
	}
	euros = map[string]int{}
	for _, row := range rows[1:] { // after the header
		n, err := strconv.Atoi(row[3])
		if err != nil {
			return nil, nil, err
		}
		if _, seen := euros[row[1]]; !seen {
			cities = append(cities, row[1])
		}
		euros[row[1]] += n
	}
	return cities, euros, nil
}
