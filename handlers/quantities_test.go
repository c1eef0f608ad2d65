package handlers_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// endless are short quantities that take hours and gigabytes to parse or compare.
var endless = []string{"1e-2147483647", "1e2147483647", "1e3000000000"}

// withQuantity are reviews with a quantity in place of $, and the plugins that read it.
var withQuantity = []struct {
	resource, sub string
	operation     codec.Operation
	user          string
	object        string
	old           string
	readers       string
}{
	{"pods", "", codec.Create, `{"username":"alice"}`,
		pod("", `"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"$"},"limits":{"cpu":"$"}}}]`), "null",
		"LimitRanger ResourceQuota PodTolerationRestriction"},
	{"pods", "", codec.Create, `{"username":"alice"}`,
		`{"spec":{"runtimeClassName":"heavy","overhead":{"cpu":"$"},` + oneContainer + `}}`, "null", "RuntimeClass"},
	{"persistentvolumeclaims", "", codec.Create, `{"username":"alice"}`,
		`{"spec":{"resources":{"requests":{"storage":"$","memory":"$"}}}}`, "null", "LimitRanger ResourceQuota"},
	{"persistentvolumeclaims", "", codec.Update, `{"username":"alice"}`, `{"spec":{"resources":{"requests":{"storage":"$"}}}}`,
		`{"spec":{"resources":{"requests":{"storage":"1"}}},"status":{"phase":"Bound"}}`, "PersistentVolumeClaimResize"},
	{"pods", "", codec.Create, `{"username":"alice"}`, pod("", `"volumes":[{"emptyDir":{"sizeLimit":"$"}}],`+oneContainer),
		"null", "PodSecurity"},
	{"persistentvolumeclaims", "status", codec.Update, `{"username":"system:node:n1","groups":["system:nodes"]}`,
		`{"status":{"capacity":{"storage":"$"}}}`, `{"status":{"capacity":{"storage":"1"}}}`, "NodeRestriction"},
}

// TestQuantitiesEnd checks that no plugin parses or compares such a quantity. A plugin that
// reads it denies the review, and no failure policy can change that.
func TestQuantitiesEnd(t *testing.T) {
	objects := append(state(),
		&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "heavy"}, Handler: "h",
			Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("1")}}})
	refused := make(map[string]int)
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		synctest.Test(t, func(t *testing.T) { // so that waits take no time
			chain := worstChain(t, plugin, objects)
			for _, test := range withQuantity {
				for _, text := range endless {
					s := shape{resource: "v1/" + test.resource, operation: test.operation, objects: func(int) (string, string) {
						return strings.ReplaceAll(test.object, "$", text), test.old
					}}
					if test.sub != "" {
						s.extra = `"subResource":"` + test.sub + `",`
					}
					for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
						if isRefused(t, chain, phase, s.body(1, test.user)) {
							refused[plugin.Name+test.object]++
						}
					}
				}
			}
		})
	}
	for _, test := range withQuantity {
		for name := range strings.FieldsSeq(test.readers) {
			if refused[name+test.object] < len(endless) {
				t.Errorf("%s: refused %d of %.200s, want %d", name, refused[name+test.object], test.object, len(endless))
			}
		}
	}
}

func isRefused(t *testing.T, chain *admission.Chain, phase admission.Phase, body []byte) bool {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	_, err := chain.Review(t.Context(), review, phase)
	var tooLarge *codec.SizeError
	return err == nil && (errors.As(review.Object.Err(), &tooLarge) || errors.As(review.OldObject.Err(), &tooLarge)) &&
		review.Response.Status.Code == 413
}
