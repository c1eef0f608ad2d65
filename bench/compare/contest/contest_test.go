package contest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

var arena *Arena

// TestMain builds the contenders once.
func TestMain(m *testing.M) {
	code := 1
	defer func() { os.Exit(code) }()
	dir, err := os.MkdirTemp("", "contest")
	if err == nil {
		defer os.RemoveAll(dir)
		arena, err = NewArena(context.Background(), dir, Contenders...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	code = m.Run()
}

func everybody(string) bool { return true }

// TestContenders checks the answers of every contender in every scenario, and to other reviews for
// which the plugins decide differently.
func TestContenders(t *testing.T) {
	scenarios, err := Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			all, err := arena.StartAll(t.Context(), s, everybody)
			if err != nil {
				t.Fatal(err)
			}
			defer StopAll(all)
			var want []Contender
			for _, c := range Contenders {
				if s.isBy(c) {
					want = append(want, c)
				}
			}
			if len(all) != len(want) || len(want) < 4 {
				t.Fatalf("got %d contenders, want %d", len(all), len(want))
			}
			for i, p := range all {
				if p.Contender != want[i] {
					t.Errorf("got %s at place %d, want %s", p.Contender.Name, i, want[i].Name)
				}
				if p.Contender.Name == Floor { // it has only one answer
					continue
				}
				for _, variant := range variants(t, s) {
					if variant.Denied && s.Serves == "ten" && p.Contender.Name == "kubewebhook" {
						continue // mutators cannot deny there, only fail
					}
					if _, err := p.Check(t.Context(), variant); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// variants returns scenarios with other reviews for the same contenders.
func variants(t *testing.T, s *Scenario) []*Scenario {
	t.Helper()
	variant := func(about, object, oldObject, patch string) *Scenario {
		var r admissionv1.AdmissionReview
		if err := json.Unmarshal(s.Review, &r); err != nil {
			t.Fatal(err)
		}
		r.Request.Operation, r.Request.Name = admissionv1.Create, ""
		r.Request.Object.Raw, r.Request.OldObject.Raw = []byte(object), nil
		if oldObject != "" {
			r.Request.Operation, r.Request.OldObject.Raw = admissionv1.Update, []byte(oldObject)
		}
		review, err := json.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		return &Scenario{Name: s.Name + ", " + about, Review: review, Patch: patch, Denied: patch == ""}
	}
	// It has all fields that encoding the types would add.
	pod := func(spec, requests, container string) string {
		return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"},"spec":{` + spec +
			`"containers":[{"name":"web","image":"docker.io/web","resources":{` + requests + `}` + container + `}]},"status":{}}`
	}
	const always = `{"op":"add","path":"/spec/containers/0/imagePullPolicy","value":"Always"}`
	switch s.Serves {
	case "validate":
		return []*Scenario{
			variant("privileged", pod("", "", `,"securityContext":{"privileged":true}`), "", ""),
			variant("not privileged", pod("", "", `,"securityContext":{"privileged":false}`), "", "[]"),
		}
	case "policy":
		good := strings.Replace(pod("", "", ""), `"name":"web"}`, `"name":"web","labels":{"app":"web"}}`, 1)
		return []*Scenario{
			variant("good", good, "", "[]"),
			variant("host network", strings.Replace(good, `"spec":{`, `"spec":{"hostNetwork":true,`, 1), "", ""),
			variant("no label", pod("", "", ""), "", ""),
			variant("other registry", strings.Replace(good, "docker.io/", "", 1), "", ""),
			variant("privileged", strings.Replace(good, `"resources"`, `"securityContext":{"privileged":true},"resources"`, 1), "", ""),
		}
	case "mutate":
		return []*Scenario{
			variant("bare", pod("", "", ""), "", "["+always+"]"),
			variant("as it should be", pod("", "", `,"imagePullPolicy":"Always"`), "", "[]"),
			variant("image volume", pod(`"volumes":[{"name":"v","image":{"reference":"r"}}],`, "", ""), "",
				"["+always+`,{"op":"add","path":"/spec/volumes/0/image/pullPolicy","value":"Always"}]`),
			variant("same image", pod("", "", ""), pod("", "", ""), "[]"),
			variant("new image", pod("", "", ""), strings.Replace(pod("", "", ""), "docker.io/web", "old", 1), "["+always+"]"),
		}
	case "ten":
		bare := strings.Replace(pod(`"automountServiceAccountToken":false,`, `"requests":{"cpu":"1"}`, ""),
			`"name":"web"}`, `"name":"web","namespace":"shop"}`, 1)
		return []*Scenario{
			variant("bare", bare, "", "["+always+`,
				{"op":"add","path":"/metadata/annotations","value":{"kubernetes.io/limit-ranger":
					"LimitRanger plugin set: memory request for container web; cpu, memory limit for container web"}},
				{"op":"add","path":"/spec/containers/0/resources/requests/memory","value":"128Mi"},
				{"op":"add","path":"/spec/containers/0/resources/limits","value":{"cpu":"500m","memory":"256Mi"}},
				{"op":"add","path":"/spec/serviceAccountName","value":"default"},
				{"op":"add","path":"/spec/serviceAccount","value":"default"},
				{"op":"add","path":"/spec/nodeSelector","value":{"pool":"general"}},
				{"op":"add","path":"/spec/priority","value":0},
				{"op":"add","path":"/spec/preemptionPolicy","value":"PreemptLowerPriority"},
				{"op":"add","path":"/spec/tolerations","value":[
					{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
					{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
					{"key":"tenant","operator":"Equal","value":"shop","effect":"NoSchedule"},
					{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"}]}]`),
			variant("no such class", strings.Replace(bare, `"spec":{`, `"spec":{"priorityClassName":"none",`, 1), "", ""),
			variant("conflicting nodes", strings.Replace(bare, `"spec":{`, `"spec":{"nodeSelector":{"pool":"other"},`, 1), "", ""),
		}
	}
	t.Fatalf("got the scenario %s, which has no other reviews", s.Serves)
	return nil
}

// TestJudge checks wrong answers.
func TestJudge(t *testing.T) {
	scenarios, err := Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	answer := func(uid string, allowed bool, patch string) []byte {
		text, err := json.Marshal(map[string]any{
			"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
			"response": map[string]any{"uid": uid, "allowed": allowed, "patch": []byte(patch)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	const uid = "c2cabb77-c72c-463d-aa23-d78813cacd6b" // the uid of the recording
	f := func(s *Scenario, answer []byte, want string) {
		t.Helper()
		if err := s.judge(answer); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	validate, mutate := scenarios[0], scenarios[1]
	f(validate, answer(uid, true, ""), "")
	f(mutate, answer(uid, true, mutate.Patch), "")
	f(validate, answer(uid, true, pullAlways), "after top-level value")
	f(validate, answer(uid, true, mutate.Patch), "want one with the same result as")
	f(mutate, answer(uid, true, ""), "want one with the same result as")
	f(mutate, answer(uid, true, `[{"op":"replace","path":"/nowhere/x","value":1}]`), "doc is missing")
	f(mutate, answer(uid, false, ""), "got allowed false")
	f(mutate, answer("other", true, mutate.Patch), "uid")
	f(mutate, bytes.Replace(answer(uid, true, mutate.Patch), []byte(".k8s.io/v1"), []byte(".k8s.io/v2"), 1), "want AdmissionReview")
	f(mutate, []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`), "with a response")
	f(mutate, []byte(`{`), "unexpected end")
}

// TestUpdateIsLarge checks the size of the update's review.
func TestUpdateIsLarge(t *testing.T) {
	scenarios, err := Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(scenarios[3].Review, &r); err != nil {
		t.Fatal(err)
	}
	for _, object := range [][]byte{r.Request.Object.Raw, r.Request.OldObject.Raw} {
		if got := len(object); got < updateBytes*99/100 || got > updateBytes*101/100 {
			t.Errorf("got an object of %d bytes, want %d", got, updateBytes)
		}
	}
}

// TestStart starts a contender that fails, and one that does not exist.
func TestStart(t *testing.T) {
	scenarios, err := Scenarios()
	if err != nil {
		t.Fatal(err)
	}
	wrong := *scenarios[0]
	wrong.Plugins = []string{"NoSuchPlugin"}
	if _, err := arena.Start(contender(Ours), &wrong, Settings{}, nil); err == nil ||
		!strings.Contains(err.Error(), `unknown admission plugin`) {
		t.Errorf("got %v", err)
	}
	if _, err := arena.Start(Contender{Name: "nobody"}, scenarios[0], Settings{}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
