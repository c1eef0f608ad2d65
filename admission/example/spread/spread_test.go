package spread

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.Mutates(t, Plugin(), "", nil, "/spec/template/spec/topologySpreadConstraints")
}
