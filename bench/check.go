package bench

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fastjson"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// Expect is the decision that an answer must have. Other answers are faults.
type Expect string

// The expectations.
const (
	// Same expects the decision of the first answer to the same recording.
	Same Expect = "same"
	// Allowed expects that the request is allowed, Denied that it is denied.
	Allowed Expect = "allowed"
	Denied  Expect = "denied"
	// Any accepts both. Use it if the decision does not depend on the review alone.
	Any Expect = "any"
)

func (e Expect) check() error {
	switch e {
	case Same, Allowed, Denied, Any:
		return nil
	}
	return fmt.Errorf("expected decision: got %q, want %q, %q, %q or %q", string(e), Same, Allowed, Denied, Any)
}

// Fault is the reason why a request failed: there was no answer, kube-apiserver would
// reject the answer (k8s.io/apiserver
// pkg/admission/plugin/webhook/request/admissionreview.go), or the decision is not the
// expected one.
type Fault string

// The faults.
const (
	FaultConnect   Fault = "no connection"          // TCP or TLS
	FaultTimeout   Fault = "no answer in time"      // see Config.Timeout
	FaultBroken    Fault = "connection broke"       // before the answer was complete
	FaultStatus    Fault = "HTTP status"            // not 200 to 206
	FaultMalformed Fault = "not an AdmissionReview" // or not JSON
	FaultVersion   Fault = "version"                // not apiVersion and kind of the request
	FaultUID       Fault = "uid"                    // not the uid of the request
	FaultDecision  Fault = "decision"               // not the expected decision
	FaultPatchType Fault = "patchType"              // without a patch, or not JSONPatch with a patch
	FaultPatch     Fault = "patch"                  // is invalid or cannot be applied to the object
)

// A wrong is the error of an answer that kube-apiserver would reject, or that is not the expected
// one.
type wrong struct {
	fault Fault
	err   error
}

// Error implements error.
func (w *wrong) Error() string { return string(w.fault) + ": " + w.err.Error() }

func faulty(fault Fault, format string, args ...any) *wrong {
	return &wrong{fault: fault, err: fmt.Errorf(format, args...)}
}

// A verdict is what an answer says.
type verdict struct {
	allowed bool
	patched bool
}

// A checker checks the answers of a run. All workers share what it learned; each has its own
// parser.
type checker struct {
	expect  Expect
	sample  int64
	learned []learned // by place of the recording
	patches atomic.Int64
}

// learned is what the first answer to a recording said.
type learned struct {
	decision atomic.Int32 // 0: none yet, 1: allowed, 2: denied
	patched  atomic.Bool  // a patch was applied
}

const (
	learnedAllowed = 1
	learnedDenied  = 2
)

func newChecker(config *Config) *checker {
	return &checker{
		expect: config.Expect, sample: int64(config.PatchSample), learned: make([]learned, len(config.Mix.recordings)),
	}
}

// check checks an answer by kube-apiserver's rules
// (k8s.io/apiserver/pkg/admission/plugin/webhook/request/admissionreview.go) and against the
// expectation.
func (c *checker) check(parser *fastjson.Parser, r *Recording, sent, uid []byte, answer *fasthttp.Response) (verdict, *wrong) {
	var v verdict
	body, fault := answerBody(answer)
	if fault != nil {
		return v, fault
	}
	review, err := parser.ParseBytes(body)
	if err != nil {
		return v, faulty(FaultMalformed, "got %s: %w", excerpt(body), err)
	}
	response := review.Get("response")
	if response == nil || response.Type() != fastjson.TypeObject {
		return v, faulty(FaultMalformed, "got %s, want an object with a response", excerpt(body))
	}
	v1beta1 := r.version == "admission.k8s.io/v1beta1"
	version, kind := review.GetStringBytes("apiVersion"), review.GetStringBytes("kind")
	right := string(version) == r.version && string(kind) == "AdmissionReview"
	if omitted := v1beta1 && version == nil && kind == nil; !right && !omitted {
		return v, faulty(FaultVersion, "got %q of %q, want AdmissionReview of %q as in the request", kind, version, r.version)
	}
	if got := response.GetStringBytes("uid"); !bytes.Equal(got, uid) && !v1beta1 {
		return v, faulty(FaultUID, "got %q, want %q", got, uid)
	}
	v.allowed = response.GetBool("allowed")
	if fault := c.checkDecision(r, v.allowed, response); fault != nil {
		return v, fault
	}
	patch := response.GetStringBytes("patch")
	v.patched = v.allowed && len(patch) > 0
	if fault := checkPatchType(response, patch, v1beta1); fault != nil {
		return v, fault
	}
	if !v.patched || !c.sampled(r) {
		return v, nil
	}
	return v, checkPatch(sent, patch)
}

// answerBody returns the body of an answer, if kube-apiserver would read it.
func answerBody(answer *fasthttp.Response) ([]byte, *wrong) {
	body := answer.Body()
	if string(answer.Header.ContentEncoding()) == "gzip" {
		unpacked, err := answer.BodyGunzipWithLimit(answerBytesMax)
		if err != nil {
			return nil, faulty(FaultMalformed, "cannot unpack the body: %w", err)
		}
		body = unpacked
	}
	if code := answer.StatusCode(); code < 200 || code > 206 {
		return nil, faulty(FaultStatus, "got %d with %s, want 200", code, excerpt(body))
	}
	return body, nil
}

func (c *checker) checkDecision(r *Recording, allowed bool, response *fastjson.Value) *wrong {
	expect, because := c.expect, "expected"
	if r.Expect != "" {
		expect = r.Expect
	}
	decision := int32(learnedDenied)
	if allowed {
		decision = learnedAllowed
	}
	first := &c.learned[r.place].decision
	if first.Load() == 0 {
		first.CompareAndSwap(0, decision)
	}
	if expect == Same {
		expect, because = Denied, "decided by the first answer to this recording"
		if first.Load() == learnedAllowed {
			expect = Allowed
		}
	}
	if expect == Any || allowed == (expect == Allowed) {
		return nil
	}
	return faulty(FaultDecision, "got allowed=%t (%s) to %s, want it %s as was %s", allowed,
		excerpt(response.GetStringBytes("status", "message")), r.Name, string(expect), because)
}

// checkPatchType checks that an answer has a patchType exactly if it has a patch. kube-apiserver
// does not check that for v1beta1.
func checkPatchType(response *fastjson.Value, patch []byte, v1beta1 bool) *wrong {
	if v1beta1 || !response.GetBool("allowed") {
		return nil
	}
	patchType := response.Get("patchType")
	present := patchType != nil && patchType.Type() != fastjson.TypeNull
	switch {
	case len(patch) > 0 && string(response.GetStringBytes("patchType")) != "JSONPatch":
		return faulty(FaultPatchType, "got %v with a patch, want %q", patchType, "JSONPatch")
	case len(patch) == 0 && present:
		return faulty(FaultPatchType, "got %v without a patch, want none", patchType)
	}
	return nil
}

// sampled reports whether the patch of an answer is one of those that are applied.
func (c *checker) sampled(r *Recording) bool {
	if first := &c.learned[r.place].patched; !first.Load() && !first.Swap(true) {
		return true
	}
	return c.patches.Add(1)%c.sample == 0
}

// checkPatch applies a patch to the object of the request with
// kube-apiserver's library.
func checkPatch(sent, encoded []byte) *wrong {
	patch := make([]byte, base64.StdEncoding.DecodedLen(len(encoded)))
	n, err := base64.StdEncoding.Decode(patch, encoded)
	if err != nil {
		return faulty(FaultPatch, "got %s, want standard base64: %w", excerpt(encoded), err)
	}
	patch = patch[:n]
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return faulty(FaultPatch, "got %s, want a list of operations: %w", excerpt(patch), err)
	}
	if len(operations) == 0 {
		return nil
	}
	var review struct {
		Request struct{ Object json.RawMessage }
	}
	if err := json.Unmarshal(sent, &review); err != nil {
		return faulty(FaultPatch, "cannot read the review that was sent: %w", err)
	}
	if string(review.Request.Object) == "null" {
		return faulty(FaultPatch, "got %s for a request without an object, want none", excerpt(patch))
	}
	patched, err := operations.Apply(review.Request.Object)
	if err != nil {
		return faulty(FaultPatch, "cannot apply %s: %w", excerpt(patch), err)
	}
	if !json.Valid(patched) {
		return &wrong{FaultPatch, errors.New("the patched object is not JSON")}
	}
	return nil
}

// excerpt shortens a text for a message.
func excerpt(text []byte) string {
	const bytesMax = 200
	if len(text) <= bytesMax {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q...", text[:bytesMax])
}
