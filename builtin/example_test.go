package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.WriteFile(filepath.Join(dir, "hello.txt"), []byte("hello\nworld\n"), 0o666)

	read, err := builtin.Read(builtin.Config{Dirs: []string{dir}})
	if err != nil {
		panic(err)
	}
	policy := &permission.Policy{Dirs: []string{dir}}
	for _, path := range []string{filepath.Join(dir, "hello.txt"), "/etc/hostname"} {
		input, _ := json.Marshal(map[string]string{"file_path": path})
		may := permission.Decide(policy, tool.PermissionCall(read, input))
		fmt.Println(filepath.Base(path), "→", may.Behavior)
		if may.Behavior != permission.Allow {
			continue
		}
		result := tool.NewCollector(tool.Call{Name: "Read"})
		for chunk, err := range tool.Run(context.Background(), read, tool.Call{Name: "Read", Input: input}) {
			if err != nil {
				panic(err)
			}
			result.Add(chunk)
		}
		fmt.Println(result.Result().Text())
	}
	// Output:
	// hello.txt → allow
	//      1	hello
	//      2	world
	// hostname → ask
}
