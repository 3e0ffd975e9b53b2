// Server serves the agent of package desk to AG-UI clients, and prints its URL: server ADDRESS SESSION_DIRECTORY.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/agui/internal/desk"
)

func main() {
	store, err := session.Dir(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	h, err := agui.New(desk.Config(store, func(ctx context.Context) error {
		select {
		case <-time.After(2 * time.Second): // so that the client can cancel the run
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("http://" + l.Addr().String())
	log.Fatal(http.Serve(l, h))
}
