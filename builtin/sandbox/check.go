package sandbox

import "fmt"

// A Status says which layers of the sandbox this machine supports.
type Status struct {
	Layers []Layer
}

// A Layer is one of the mechanisms of the sandbox.
type Layer struct {
	Name string
	OK   bool // this machine supports the layer

	// Detail is the version, or why the layer is missing and the remedy.
	Detail string

	// Means is the effect of the layer, or of its absence.
	Means string
}

// The names of the layers.
const (
	layerSystem     = "system"
	layerNamespaces = "namespaces"
	layerProc       = "own /proc"
	layerLimit      = "limit of processes"
	layerSeccomp    = "seccomp"
	layerLandlock   = "Landlock"
	layerUnix       = "Unix sockets"
	layerScratch    = "scratch directories"
)

// Confines returns nil if the profiles read and work are available, and otherwise why they are not.
func (s Status) Confines() error {
	for _, l := range s.Layers {
		switch l.Name {
		case layerSystem, layerNamespaces, layerSeccomp:
			if !l.OK {
				return fmt.Errorf("%w: %s: %s", ErrUnavailable, l.Name, l.Detail)
			}
		}
	}
	return nil
}
