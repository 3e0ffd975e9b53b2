package sandbox

import "fmt"

// A Status says what this machine can confine with.
type Status struct {
	Layers []Layer
}

// A Layer is one of the means of confinement.
type Layer struct {
	Name string
	OK   bool

	// Detail says which version there is, or why there is none, and what to do about it.
	Detail string

	// Means says what the layer is for, or what it means that it is not there.
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

// Confines reports whether the profiles read and work can be had, and why not.
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
