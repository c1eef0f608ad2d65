package growth

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionpolicy"
)

// reviewOf returns the review of the recorded Pod after a change.
func reviewOf(t *testing.T, change func(*corev1.Pod)) []byte {
	t.Helper()
	var review admissionv1.AdmissionReview
	var pod corev1.Pod
	if err := json.Unmarshal(corpus.MustRead("pods-create-v1-1.json"), &review); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(review.Request.Object.Raw, &pod); err != nil {
		t.Fatal(err)
	}
	change(&pod)
	var err error
	if review.Request.Object.Raw, err = json.Marshal(&pod); err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(&review)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestWorks evaluates the policies of each work that files can have. They must allow the recorded Pod; each of those for Pods
// must deny the Pod that violates it.
func TestWorks(t *testing.T) {
	const n = 8
	var namespace corev1.Namespace
	if err := yaml.Unmarshal([]byte(Namespace("shop")), &namespace); err != nil {
		t.Fatal(err)
	}
	f := func(work *Work, violated, byBinding string) {
		t.Helper()
		handler := admissiontest.ManifestsHandler(t, validatingadmissionpolicy.Plugin(),
			[]admission.File{{Name: "all.yaml", Content: work.Manifest(n)}}, &namespace)
		for i := -1; i < n; i++ {
			body := reviewOf(t, func(pod *corev1.Pod) {
				if i >= 0 {
					Violate(pod, i)
				}
			})
			review := codec.Acquire()
			if err := review.Decode(body); err != nil {
				t.Fatal(err)
			}
			message := ""
			if result := handler.Validate(t.Context(), review); result.Denial != nil {
				message = result.Denial.Message
			}
			review.Release()
			want := ""
			if i >= 0 && (violated == "" || violated == fmt.Sprint(i)) {
				want = fmt.Sprintf("'policy-%d' with binding '%s", i, byBinding)
			}
			if (message == "") != (want == "") || !strings.Contains(message, want) {
				t.Errorf("%s, violating %d: got %q, want %q in it", work.Name, i, message, want)
			}
		}
	}
	works := Works()
	f(&works[0], "", "binding-")
	f(&works[1], "0", "binding-0")
	f(&works[2], "0", "binding-")
}

// TestDocuments checks that larger works begin with the documents of smaller ones, and how many there are.
func TestDocuments(t *testing.T) {
	for _, work := range Works() {
		few, many := work.Documents(10), work.Documents(100)
		if !slices.Equal(few, many[:len(few)]) || len(many)-len(few) != 90 && len(many)-len(few) != 180 {
			t.Errorf("%s: got %d and %d documents, want that all begin as the fewer", work.Name, len(few), len(many))
		}
		custom := AsCustomResources(string(work.Manifest(10)))
		if strings.Contains(custom, "admissionregistration") || !strings.Contains(custom, "apiVersion: policies.fastadmit.io/v1\n") {
			t.Errorf("%s: got %.300s, want custom resources", work.Name, custom)
		}
	}
	if few := Works()[2].Documents(10); strings.Count(strings.Join(few, ""), "{team: shop}") != teamBindings {
		t.Errorf("got %q, want three bindings for the team", few)
	}
}

func TestResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "growth.json")
	r, err := Read(file)
	if err != nil || r.Reviews != nil || r.Cluster != nil {
		t.Errorf("got %+v, %v of no file", r, err)
	}
	row := Create{By: InTree, Number: 10, Pods: 5, Added: bench.Spread{Median: 1, Min: 1, Max: 2}, P50: 3, P99: 4}
	r.Put(Cluster{Release: "1.37", Work: Others})
	r.Put(Cluster{Release: "1.37", Work: Matching, Rows: []Create{{By: InTree, Number: 1}}})
	r.Put(Cluster{Release: "1.36", Work: Matching})
	r.Put(Cluster{Run: Run{Commit: "abc"}, Release: "1.37", Work: Matching, Rows: []Create{row}})
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	got, err := Read(file)
	if err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v, %v, want %+v", got, err, r)
	}
	var order []string
	for _, c := range got.Cluster {
		order = append(order, c.Work+c.Release)
	}
	if want := []string{"matching1.36", "matching1.37", "others1.37"}; !slices.Equal(order, want) {
		t.Errorf("got %q, want %q", order, want)
	}
	if found := got.Cluster[1].Find(InTree, 10); found == nil || *found != row || got.Cluster[1].Find(InTree, 1) != nil {
		t.Errorf("got %+v, want the last row that was put", found)
	}
}
