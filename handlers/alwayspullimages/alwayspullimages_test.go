package alwayspullimages

import (
	"testing"

	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	handlertest.Mutates(t, Plugin(), "",
		"/spec/containers/*/imagePullPolicy",
		"/spec/initContainers/*/imagePullPolicy",
		"/spec/ephemeralContainers/*/imagePullPolicy",
		"/spec/volumes/*/image/pullPolicy",
	)
}
