package toolkit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// largeToolkit returns a toolkit with n tools in groups of 20.
func largeToolkit(tb testing.TB, n int, control *toolkit.Control) *toolkit.Toolkit {
	cfg := toolkit.Config{Control: control, Basic: toolkit.Group{Tools: fakes("now", "say")}}
	for g := range n / 20 {
		var names []string
		for i := range 20 {
			names = append(names, fmt.Sprintf("group%d_tool%d", g, i))
		}
		cfg.Groups = append(cfg.Groups, group(fmt.Sprintf("group%d", g), names...))
	}
	return newToolkit(tb, cfg)
}

// compare times both functions in turn and reports the median ratio, which depends less on the
// machine than a time does.
func compare(b *testing.B, unit string, ours, theirs func()) {
	times := func(f func(), n int) time.Duration {
		start := time.Now()
		for range n {
			f()
		}
		return time.Since(start)
	}
	const rounds = 9
	n := 1
	for times(theirs, n) < 2*time.Millisecond {
		n *= 2
	}
	var ratios []float64
	for range rounds {
		ratios = append(ratios, float64(times(ours, n))/float64(times(theirs, n)))
	}
	slices.Sort(ratios)
	for b.Loop() {
		ours()
	}
	b.ReportMetric(ratios[rounds/2], unit)
}

// BenchmarkViewCached compares an unchanged view with a look-up in a
// map that a mutex guards. The aim is 0 allocations and at most the cost of 5 look-ups.
func BenchmarkViewCached(b *testing.B) {
	tk := largeToolkit(b, 1000, nil)
	s := new(toolkit.Scope)
	ctx := context.Background()
	newView(b, tk, s)
	var mu sync.Mutex
	m := map[string]int{"group7": 7}
	b.ReportAllocs()
	compare(b, "look-ups", func() {
		if _, err := tk.View(ctx, s); err != nil {
			b.Fatal(err)
		}
	}, func() {
		mu.Lock()
		_ = m["group7"]
		mu.Unlock()
	})
}

// BenchmarkViewNew compares a view of a new state with a copy of
// the visible tools' slice and map. The aim is at most the cost of 3 copies, whatever the
// number of registered tools.
func BenchmarkViewNew(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("registered=%d", n), func(b *testing.B) {
			tk := largeToolkit(b, n, nil)
			s := new(toolkit.Scope)
			ctx := context.Background()
			if _, err := tk.Enable(ctx, s, "group0", "group3"); err != nil {
				b.Fatal(err)
			}
			infos := newView(b, tk, s).Tools()
			byName := map[string]tool.Info{}
			for _, i := range infos {
				byName[i.Name] = i
			}
			i := 0
			b.ReportAllocs()
			compare(b, "copies", func() {
				i++
				s.SetPhase(fmt.Sprint(i)) // a new state, of which no view is cached
				if _, err := tk.View(ctx, s); err != nil {
					b.Fatal(err)
				}
			}, func() {
				_ = slices.Clone(infos)
				_ = maps.Clone(byName)
			})
		})
	}
}

// BenchmarkTransition opens and closes a group and gets the view each time.
func BenchmarkTransition(b *testing.B) {
	tk := largeToolkit(b, 1000, nil)
	s := new(toolkit.Scope)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tk.Enable(ctx, s, "group7"); err != nil {
			b.Fatal(err)
		}
		newView(b, tk, s)
		if _, err := tk.Disable(ctx, s, "group7"); err != nil {
			b.Fatal(err)
		}
		newView(b, tk, s)
	}
}

// BenchmarkSearch compares a search over 2,000 tools of 48 real servers with encoding
// their schemas, as a request that contains them all must do. The aim is at most
// 1/20.
func BenchmarkSearch(b *testing.B) {
	var infos []tool.Info
	cfg := toolkit.Config{Control: toolkit.Discover()}
	for n := 0; len(infos) < 2000; n++ {
		for _, g := range servers(b) {
			g.Name = fmt.Sprintf("%s%d", g.Name, n)
			for i, t := range g.Tools {
				info := t.Info()
				info.Name = fmt.Sprintf("%s_%d", info.Name, n)
				g.Tools[i] = served{info}
				infos = append(infos, info)
			}
			cfg.Groups = append(cfg.Groups, g)
		}
	}
	tk, s := newToolkit(b, cfg), new(toolkit.Scope)
	search, args, err := newView(b, tk, s).Resolve(b.Context(), "search_tools", json.RawMessage(`{"query":"send a mail with an attachment"}`))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	b.ReportAllocs()
	compare(b, "encodings", func() {
		for _, err := range search.Call(ctx, tool.Call{Input: args}) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}, func() {
		if _, err := json.Marshal(infos); err != nil {
			b.Fatal(err)
		}
	})
}

// TestAllocations: a cached view does not allocate, and a new one no more for more registered tools.
func TestAllocations(t *testing.T) {
	tk := largeToolkit(t, 1000, nil)
	s := new(toolkit.Scope)
	newView(t, tk, s)
	if n := testing.AllocsPerRun(100, func() { newView(t, tk, s) }); n != 0 {
		t.Errorf("a cached view allocates %v times", n)
	}
	perView := func(n int) float64 {
		tk, s, i := largeToolkit(t, n, nil), new(toolkit.Scope), 0
		if _, err := tk.Enable(context.Background(), s, "group0"); err != nil {
			t.Fatal(err)
		}
		newView(t, tk, s)
		return testing.AllocsPerRun(100, func() {
			i++
			s.SetPhase(fmt.Sprint(i))
			newView(t, tk, s)
		})
	}
	if small, big := perView(100), perView(10_000); big > small+1 {
		t.Errorf("a new view allocates %v times with 100 tools and %v times with 10,000", small, big)
	}
}

// TestScopeSize: an idle session with a view takes at most 1 KiB.
func TestScopeSize(t *testing.T) {
	tk := largeToolkit(t, 1000, nil)
	const n = 2000
	scopes := make([]*toolkit.Scope, 0, n)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	newView(t, tk, new(toolkit.Scope)).Digest()
	before := heap()
	for range n {
		s := new(toolkit.Scope)
		if _, err := tk.Enable(context.Background(), s, "group7", "group9"); err != nil {
			t.Fatal(err)
		}
		newView(t, tk, s)
		scopes = append(scopes, s)
	}
	per := (heap() - before) / n
	if per > 1024 {
		t.Errorf("a scope with two groups open and a view takes %d bytes", per)
	}
	t.Logf("%d bytes each", per)
	runtime.KeepAlive(scopes)
}
