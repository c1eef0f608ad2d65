// Command nethttp is a webhook written without a webhook library: net/http, and encoding/json into
// the types of k8s.io/api. It makes the patch by comparing two encodings of the Pod.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/bench/compare/policies"
	"github.com/fastadmit/fastadmit/bench/compare/serving"
	"github.com/fastadmit/fastadmit/bench/compare/typed"
)

func main() {
	o := serving.Flags()
	mutators, err := typed.Mutators(o.Scenario)
	if err != nil {
		log.Fatal(err)
	}
	decide := func(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return decide(request, mutators)
	}
	if o.Scenario == "policy" {
		policy, err := policies.New()
		if err != nil {
			log.Fatal(err)
		}
		decide = func(request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
			return evaluate(policy, request)
		}
	}
	o.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := review(r.Body, decide)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer) //nolint:errcheck // the client is gone
	}))
}

func review(body io.Reader, decide func(*admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)) ([]byte, error) {
	content, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(content, &review); err != nil {
		return nil, err
	}
	if review.Request == nil {
		return nil, fmt.Errorf("got %s %s without a request", review.APIVersion, review.Kind)
	}
	review.Response, err = decide(review.Request)
	if err != nil {
		return nil, err
	}
	review.Response.UID = review.Request.UID
	review.Request = nil
	return json.Marshal(&review)
}

// evaluate implements the scenario "policy", for which it decodes the object into maps.
func evaluate(policy policies.Policy, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	var object map[string]any
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return nil, err
	}
	if err := policy.Check(object); err != nil {
		return denied(err), nil
	}
	return &admissionv1.AdmissionResponse{Allowed: true}, nil
}

func decide(request *admissionv1.AdmissionRequest, mutators []typed.Mutator) (*admissionv1.AdmissionResponse, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
		return nil, err
	}
	if mutators == nil {
		if err := typed.ValidatePrivileged(&pod); err != nil {
			return denied(err), nil
		}
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	}
	var old *corev1.Pod
	if request.Operation == admissionv1.Update {
		old = new(corev1.Pod)
		if err := json.Unmarshal(request.OldObject.Raw, old); err != nil {
			return nil, err
		}
	}
	for _, mutate := range mutators {
		if err := mutate(&pod, old); err != nil {
			return denied(err), nil
		}
	}
	mutated, err := json.Marshal(&pod)
	if err != nil {
		return nil, err
	}
	operations, err := jsonpatch.CreatePatch(request.Object.Raw, mutated)
	if err != nil || len(operations) == 0 {
		return &admissionv1.AdmissionResponse{Allowed: true}, err
	}
	patch, err := json.Marshal(operations)
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: new(admissionv1.PatchTypeJSONPatch)}, err
}

func denied(err error) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: http.StatusForbidden, Message: err.Error()}}
}
