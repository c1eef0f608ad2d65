package policies

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	defaults "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
)

// inputVariable names folders with further policies to compare.
const inputVariable = "FASTADMIT_POLICIES_INPUT"

// TestLibrary compares both sides' evaluation of each ValidatingAdmissionPolicy in the folders on
// all recordings. Policies with parameters are evaluated without one.
func TestLibrary(t *testing.T) {
	row := tally.Row{Plugin: "ValidatingAdmissionPolicy", Test: "libraries in process"}
	input := append([]string{"../../deploy/chart/policies"}, filepath.SplitList(os.Getenv(inputVariable))...)
	policies, denied := 0, 0
	for _, item := range manifest.Read(input, nil, files.Everywhere) {
		if item.Fault != nil || item.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		documents := single()
		policy := &documents.Policies[0]
		*policy = admissionregistrationv1.ValidatingAdmissionPolicy{}
		if err := json.Unmarshal(item.JSON, policy); err != nil {
			t.Fatalf("%s: %v", item.Source, err)
		}
		policies++
		policy.TypeMeta = metav1.TypeMeta{}
		policy.Name, policy.Labels, policy.Annotations = "p", nil, nil
		defaults.SetObjectDefaults_ValidatingAdmissionPolicy(policy)
		upstream, err := NewUpstream(documents, readOnly{}, namespaces()...)
		if err != nil {
			t.Fatalf("%s: %v", item.Source, err)
		}
		chain := ours(t, documents, admission.Newest())
		for _, name := range corpus.Names() {
			row.Cases++
			if d, _ := compare(t, documents, upstream, chain, corpus.MustRead(name)); d {
				denied++
			}
			if t.Failed() {
				t.Fatalf("%s on %s", item.Source, name)
			}
		}
	}
	if t.Logf("%d policies, %d of %d denied", policies, denied, row.Cases); policies < 10 || denied == 0 || denied == row.Cases {
		t.Errorf("got %d policies, %d of %d denied, want some of each", policies, denied, row.Cases)
	}
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}
