package twins

import (
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/fastadmit/fastadmit/internal/testserver"
)

// hookBackend is a server of webhooks, which both sides call. Its answer depends only on the path
// and the request. The first segment of the path names the behavior, the second one the webhook.
type hookBackend struct{ *testserver.Server }

func startHooks(t *testing.T) *hookBackend {
	t.Helper()
	b := &hookBackend{testserver.Unstarted(t, http.HandlerFunc(serveHook))}
	b.Config.ErrorLog = log.New(io.Discard, "", 0) // a caller that does not trust it reports that itself
	b.StartTLS()
	return b
}

func (b *hookBackend) caBundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})
}

// hookReview contains the fields of a review that a webhook reads.
type hookReview struct {
	APIVersion string
	Request    map[string]any
}

// hookAnswers are the webhooks' answers without the uid, for either phase, with the name of the
// webhook.
var hookAnswers = map[string]func(name string, r *hookReview) string{
	"allow": func(string, *hookReview) string { return `"allowed":true` },
	"echo": func(_ string, r *hookReview) string {
		return `"allowed":true,"warnings":[` + quoted(r.shown()) + `]`
	},
	"warn": func(name string, _ *hookReview) string {
		return `"allowed":true,"warnings":["careful ` + name + `","careful","","ä\t€"]`
	},
	"annotate": func(string, *hookReview) string {
		return `"allowed":true,"auditAnnotations":{"k":"v","a/b":"w","":"x","é":"y"}`
	},
	"deny": func(string, *hookReview) string { return `"allowed":false` },
	"deny-message": func(name string, _ *hookReview) string {
		return `"allowed":false,"status":{"message":"no ` + name + `"}`
	},
	"deny-code": func(string, *hookReview) string {
		return `"allowed":false,"status":{"reason":"Gone","code":410,"message":"a\nb"},"warnings":["denied"],` +
			`"auditAnnotations":{"k":"denied"}`
	},
	"deny-details": func(string, *hookReview) string {
		return `"allowed":false,"status":{"code":200,"details":{"name":"n","causes":[{"reason":"r","message":"m","field":"f"}],` +
			`"retryAfterSeconds":3}}`
	},
	"deny-prod": func(_ string, r *hookReview) string {
		if label, _ := r.field("object", "metadata", "labels", "env").(string); label == "prod" {
			return `"allowed":false,"status":{"message":"not in prod"}`
		}
		return `"allowed":true`
	},
	"patch-without-type": func(string, *hookReview) string { return `"allowed":true,"patch":"W10="` },
	"type-without-patch": func(string, *hookReview) string { return `"allowed":true,"patchType":"JSONPatch"` },
	"no-boolean":         func(string, *hookReview) string { return `"allowed":"yes"` },
}

// hookPatches are the patches of mutating webhooks. They do not repeat a change that is already
// made: if the request is a patch, in-tree counts one without effect as a change.
var hookPatches = map[string]func(name string, r *hookReview) string{
	// append records the order and number of calls.
	"append": func(name string, r *hookReview) string {
		annotations, _ := r.field("object", "metadata", "annotations").(map[string]any)
		if annotations == nil {
			return `[{"op":"add","path":"/metadata/annotations","value":{"order":` + quoted(name) + `}}]`
		}
		order, _ := annotations["order"].(string)
		return `[{"op":"add","path":"/metadata/annotations/order","value":` + quoted(order+" "+name) + `}]`
	},
	"once": func(name string, r *hookReview) string {
		labels, _ := r.field("object", "metadata", "labels").(map[string]any)
		if labels == nil {
			return `[{"op":"add","path":"/metadata/labels","value":{` + quoted(name) + `:"yes"}}]`
		}
		if labels[name] != nil {
			return `[]`
		}
		return `[{"op":"add","path":"/metadata/labels/` + name + `","value":"yes"}]`
	},
	"prod": func(_ string, r *hookReview) string {
		labels, _ := r.field("object", "metadata", "labels").(map[string]any)
		switch {
		case labels == nil:
			return `[{"op":"add","path":"/metadata/labels","value":{"env":"prod"}}]`
		case labels["env"] == "prod":
			return `[]`
		}
		return `[{"op":"add","path":"/metadata/labels/env","value":"prod"}]`
	},
	"unlabeled": func(_ string, r *hookReview) string {
		if r.field("kind", "kind") == "Namespace" { // in-tree, a Namespace has its label again for the next webhook
			return `[]`
		}
		return `[{"op":"remove","path":"/metadata/labels"}]`
	},
	"empty":   func(string, *hookReview) string { return `[]` },
	"missing": func(string, *hookReview) string { return `[{"op":"remove","path":"/nothing"}]` },
	"unknown": func(string, *hookReview) string { return `[{"op":"jump","path":"/metadata"}]` },
	"test":    func(string, *hookReview) string { return `[{"op":"test","path":"/kind","value":"Other"}]` },
	"no-list": func(string, *hookReview) string { return `{}` },
}

func quoted(text string) string {
	encoded, _ := json.Marshal(text)
	return string(encoded)
}

// field returns a field of the request, nil if it is missing.
func (r *hookReview) field(path ...string) any {
	var at any = r.Request
	for _, name := range path {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	return at
}

// hookObjects are the objects that webhooks have received, by digest.
var hookObjects sync.Map

// digests begin with a number sign in what shown returns.
var digests = regexp.MustCompile("#[0-9a-f]{8}")

// shown returns the request with its random parts replaced.
func (r *hookReview) shown() string {
	text := r.APIVersion
	for _, name := range []string{"operation", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource",
		"name", "namespace", "dryRun"} {
		encoded, _ := json.Marshal(r.Request[name])
		text += fmt.Sprintf(" %s=%s", name, encoded)
	}
	for _, name := range []string{"object", "oldObject", "options"} {
		object, _ := r.Request[name].(map[string]any)
		if metadata, _ := object["metadata"].(map[string]any); metadata != nil {
			for _, own := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields"} {
				delete(metadata, own)
			}
		}
		encoded, _ := json.Marshal(object)
		digest := fmt.Sprintf("%x", sha256.Sum256(encoded))[:8]
		hookObjects.Store(digest, string(encoded))
		text += " " + name + "=#" + digest
	}
	user, _ := json.Marshal(r.field("userInfo", "username"))
	return text + " by=" + string(user)
}

func serveHook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var review hookReview
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	does, name, _ := strings.Cut(r.URL.Path[1:], "/")
	w.Header().Set("Content-Type", "application/json")
	var response string
	switch does {
	case "hang":
		<-r.Context().Done()
		panic(http.ErrAbortHandler) // an answer could still be read by a caller that is about to close the connection
	case "text":
		http.Error(w, "out of order", http.StatusBadGateway)
		return
	case "status":
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Status","status":"Failure","message":"nothing here","code":404}`))
		return
	case "nothing":
		return
	case "closed":
		panic(http.ErrAbortHandler)
	case "uid":
		review.Request["uid"] = "other"
		response = `"allowed":true`
	default:
		if patch := hookPatches[does]; patch != nil {
			encoded, _ := json.Marshal([]byte(patch(name, &review)))
			response = `"allowed":true,"patchType":"JSONPatch","patch":` + string(encoded)
		} else {
			response = hookAnswers[does](name, &review)
		}
	}
	_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":"AdmissionReview","response":{"uid":%q,%s}}`, review.APIVersion, review.Request["uid"],
		response)
}
