package mcpserver_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/mcpserver/sharedtest"
)

func TestShared(t *testing.T) {
	s := mcpserver.NewShared()
	sharedtest.Run(t, s, s)
}
