// Command fastjson is fast libraries put together without more thought:
// fasthttp, fastjson for the whole review, and a patch that jsondiff finds
// between two documents.
package main

import (
	"crypto/tls"
	"encoding/json"
	"log"
	"strings"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fastjson"
	"github.com/wI2L/jsondiff"

	"github.com/fastadmit/fastadmit/bench/compare/serving"
)

var parsers fastjson.ParserPool

func main() {
	o := serving.Flags()
	server := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			answer, err := review(ctx.PostBody(), o.Work)
			if err != nil {
				ctx.Error(err.Error(), fasthttp.StatusBadRequest)
				return
			}
			ctx.SetContentType("application/json")
			ctx.SetBody(answer)
		},
		MaxRequestBodySize: 32 << 20,
	}
	log.Fatal(server.Serve(tls.NewListener(serving.Listen(), o.TLS())))
}

// A response is the part of an AdmissionReview that answers.
type response struct {
	UID       string          `json:"uid"`
	Allowed   bool            `json:"allowed"`
	Status    json.RawMessage `json:"status,omitempty"`
	Patch     []byte          `json:"patch,omitempty"`
	PatchType string          `json:"patchType,omitempty"`
}

func review(body []byte, work string) ([]byte, error) {
	parser := parsers.Get()
	defer parsers.Put(parser)
	document, err := parser.ParseBytes(body)
	if err != nil {
		return nil, err
	}
	request := document.Get("request")
	answer := response{UID: string(request.GetStringBytes("uid")), Allowed: true}
	if pod := request.Get("object"); work == "validate" {
		if privileged(pod) {
			answer.Allowed, answer.Status = false, json.RawMessage(`{"code":403,"message":"a container is privileged"}`)
		}
	} else if err := mutate(work, pod, request, &answer); err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"kind": "AdmissionReview", "apiVersion": string(document.GetStringBytes("apiVersion")), "response": answer,
	})
}

func mutate(work string, pod, request *fastjson.Value, answer *response) error {
	before := pod.MarshalTo(nil)
	isUpdate := string(request.GetStringBytes("operation")) == "UPDATE"
	if !isUpdate || hasNewImage(pod, request.Get("oldObject")) {
		alwaysPullImages(pod)
	}
	if work == "ten" {
		mutateMore(pod)
	}
	operations, err := jsondiff.CompareJSON(before, pod.MarshalTo(nil))
	if err != nil || len(operations) == 0 {
		return err
	}
	answer.PatchType = "JSONPatch"
	answer.Patch, err = json.Marshal(operations)
	return err
}

// containers returns all containers of a Pod.
func containers(pod *fastjson.Value) []*fastjson.Value {
	var all []*fastjson.Value
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		all = append(all, pod.GetArray("spec", list)...)
	}
	return all
}

func privileged(pod *fastjson.Value) bool {
	for _, c := range containers(pod) {
		if c.GetBool("securityContext", "privileged") {
			return true
		}
	}
	return false
}

func hasNewImage(pod, old *fastjson.Value) bool {
	known := make(map[string]bool)
	for _, c := range containers(old) {
		known[string(c.GetStringBytes("image"))] = true
	}
	for _, c := range containers(pod) {
		if !known[string(c.GetStringBytes("image"))] {
			return true
		}
	}
	return false
}

func alwaysPullImages(pod *fastjson.Value) {
	for _, c := range containers(pod) {
		c.Set("imagePullPolicy", fastjson.MustParse(`"Always"`))
	}
	for _, volume := range pod.GetArray("spec", "volumes") {
		if image := volume.Get("image"); image != nil {
			image.Set("pullPolicy", fastjson.MustParse(`"Always"`))
		}
	}
}

// ensure returns the member of an object, which it makes if it is missing.
func ensure(v *fastjson.Value, name, empty string) *fastjson.Value {
	if !v.Exists(name) {
		v.Set(name, fastjson.MustParse(empty))
	}
	return v.Get(name)
}

// mutateMore does what package typed does behind AlwaysPullImages.
func mutateMore(pod *fastjson.Value) {
	spec := pod.Get("spec")
	tolerate(pod)
	ensure(ensure(spec, "securityContext", "{}"), "seccompProfile", `{"type":"RuntimeDefault"}`)
	ensure(spec, "automountServiceAccountToken", "false")
	ensure(ensure(spec, "nodeSelector", "{}"), "kubernetes.io/os", `"linux"`)
	ensure(ensure(pod.Get("metadata"), "labels", "{}"), "cost-center", `"unknown"`)
	for _, c := range containers(pod) {
		if image, found := strings.CutPrefix(string(c.GetStringBytes("image")), "docker.io/"); found {
			c.Set("image", new(fastjson.Arena).NewString("mirror.example.com/"+image))
		}
		ensure(ensure(c, "securityContext", "{}"), "allowPrivilegeEscalation", "false")
	}
	if spec.GetInt("terminationGracePeriodSeconds") > 300 {
		spec.Set("terminationGracePeriodSeconds", fastjson.MustParse("300"))
	}
}

// tolerate is DefaultTolerationSeconds and ExtendedResourceToleration.
func tolerate(pod *fastjson.Value) {
	spec := pod.Get("spec")
	var missing []string
	for _, taint := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		tolerated := false
		for _, has := range spec.GetArray("tolerations") {
			key, effect := string(has.GetStringBytes("key")), string(has.GetStringBytes("effect"))
			tolerated = tolerated || (key == taint || key == "") && (effect == "NoExecute" || effect == "")
		}
		if !tolerated {
			missing = append(missing, `{"key":"`+taint+`","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}`)
		}
	}
	seen := make(map[string]bool)
	for _, c := range containers(pod) {
		c.GetObject("resources", "requests").Visit(func(name []byte, _ *fastjson.Value) { seen[string(name)] = true })
	}
	for name := range seen {
		if domain, _, found := strings.Cut(name, "/"); found && !strings.HasSuffix(domain, "kubernetes.io") {
			missing = append(missing, `{"key":"`+name+`","operator":"Exists","effect":"NoSchedule"}`)
		}
	}
	for _, toleration := range missing {
		list := ensure(spec, "tolerations", "[]")
		list.SetArrayItem(len(list.GetArray()), fastjson.MustParse(toleration))
	}
}
