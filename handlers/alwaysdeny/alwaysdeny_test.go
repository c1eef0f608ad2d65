package alwaysdeny

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// TestRecordings denies every recorded review.
func TestRecordings(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	for _, name := range corpus.Names() {
		for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
			checkDenied(t, phase.String()+" "+name, admissiontest.Answer(t, chain, phase, corpus.MustRead(name)))
		}
	}
}

func checkDenied(t *testing.T, about string, response []byte) {
	t.Helper()
	var got struct {
		Allowed bool
		Status  struct {
			Code            int
			Reason, Message string
		}
	}
	if err := json.Unmarshal(response, &got); err != nil {
		t.Fatal(err)
	}
	const message = " is forbidden: admission control is denying all modifications"
	if got.Allowed || got.Status.Code != 403 || got.Status.Reason != "Forbidden" ||
		!strings.HasSuffix(got.Status.Message, message) || strings.Contains(got.Status.Message, `"Unknown/`) {
		t.Errorf("%s: got %s, want 403, Forbidden and a message that ends in %q", about, response, message)
	}
}
