package mcpgateway_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpgateway"
	"github.com/kitbag-go/kitbag/tool"
)

// realTools returns n tools with the definitions of recorded servers, under other names.
func realTools(tb testing.TB, n int) []tool.Info {
	files, err := filepath.Glob("../testdata/mcp_tools/*.json")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no recorded server: %v", err)
	}
	var all []tool.Info
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		var list struct {
			Tools []struct {
				Name, Description string
				InputSchema       json.RawMessage
			}
		}
		if err := json.Unmarshal(data, &list); err != nil {
			tb.Fatal(err)
		}
		for _, t := range list.Tools {
			all = append(all, tool.Info{Name: strings.ReplaceAll(t.Name, "-", "_"), Description: t.Description, Input: t.InputSchema})
		}
	}
	out := make([]tool.Info, n)
	for i := range out {
		out[i] = all[i%len(all)]
		out[i].Name = fmt.Sprintf("%s_%d", out[i].Name, i)
	}
	return out
}

// BenchmarkManyTools measures a gateway in front of 50 servers with 2,000 real tools: the first list of a session,
// a search, and the memory after all servers were listed. The servers run in the same process, so that their
// tools are counted too. The aims are 20 ms, 5 ms and 150 MB.
func BenchmarkManyTools(b *testing.B) {
	infos := realTools(b, 2000)
	var servers []mcpclient.Server
	for i := range 50 {
		var tools []tool.Tool
		for _, info := range infos[40*i : 40*i+40] {
			tools = append(tools, listed{echo(), info})
		}
		servers = append(servers, behind(b, fmt.Sprintf("server%d", i), tools...).Server)
	}
	g := newGateway(b, mcpgateway.Config{Servers: servers, Search: true})
	search := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search_tools","arguments":{"query":"append rows to the table of a spreadsheet"}}}`
	if got := newWire(b, g).ask(search); !strings.Contains(string(got), "add_excel_table_rows") { // starts all servers
		b.Fatalf("%s", got)
	}
	var first, found time.Duration
	n := 0
	for b.Loop() {
		w := newWire(b, g)
		start := time.Now()
		w.ask(listBody)
		first += time.Since(start)
		start = time.Now()
		w.ask(search)
		found += time.Since(start)
		n++
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(first.Seconds()*1000/float64(n), "list-ms")
	b.ReportMetric(found.Seconds()*1000/float64(n), "search-ms")
	b.ReportMetric(float64(m.HeapAlloc+m.StackInuse)/(1<<20), "MB")
	b.ReportMetric(0, "ns/op")
}

// listed is a tool with another definition.
type listed struct {
	tool.Tool
	info tool.Info
}

func (l listed) Info() tool.Info { return l.info }
