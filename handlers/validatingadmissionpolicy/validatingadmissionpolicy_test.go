package validatingadmissionpolicy

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }
