package audit

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// A reportAPI is one of the APIs for reports: a kind in namespaces, and one for
// objects that are in none.
type reportAPI struct {
	schema.GroupVersion
	kind, resource               string
	clusterKind, clusterResource string
	hasSource                    bool // of the report, beside those of its results
}

// reportAPIs are those that policy-reporter reads, the newer one first. Kubewarden
// writes the first, and Kyverno the second unless it is told otherwise.
var reportAPIs = []reportAPI{
	{schema.GroupVersion{Group: "openreports.io", Version: "v1alpha1"}, "Report", "reports", "ClusterReport", "clusterreports", true},
	{schema.GroupVersion{Group: "wgpolicyk8s.io", Version: "v1alpha2"}, "PolicyReport", "policyreports", "ClusterPolicyReport", "clusterpolicyreports", false},
}

// ReportAPIs returns the API group versions of the reports that Reports can write, in the
// order of preference.
func ReportAPIs() (all []string) {
	for i := range reportAPIs {
		all = append(all, reportAPIs[i].String())
	}
	return all
}

const (
	// reportManager is the field manager of reports, and the value of their label
	// app.kubernetes.io/managed-by. Reports of other programs have another value.
	reportManager = "fastadmit-audit"
	managedBy     = "app.kubernetes.io/managed-by"

	// reportSource is what readers group and filter results by.
	reportSource = "fastadmit"

	// findingsMax bounds the results of a report. An object has one for each plugin
	// that denies, fails or warns, for itself and for what controllers make of it.
	findingsMax = 100

	// messageMax and nameMax bound the message of a result, and the names in it, as JSON in
	// bytes: a report of 100 has less than the 1.5 MiB that etcd stores, whatever a tenant writes.
	// Otherwise the API server would refuse the report. Names of Kubernetes have up to 253 bytes.
	messageMax = 8 << 10
	nameMax    = 640
)

// Reports writes a report for each object with findings into the namespace of the object.
// It removes the reports of objects that have no findings any more. Only one goroutine at
// a time may use it.
type Reports struct {
	client *client
	api    *reportAPI
	now    func() time.Time
	// known are the reports that the cluster has. It grows with the objects that
	// have findings: some 150 bytes each.
	known map[reportKey]*knownReport
}

type reportKey struct{ namespace, name string }

type knownReport struct {
	digest digest
	seen   bool // whether this run has the report, too
}

// A digest identifies the content of a report.
type digest [16]byte

// digestOf returns the digest of the content of a report. It ignores the times of the findings, and
// labels and annotations, which other programs may add. If a user has changed a report, its digest
// differs, so it is written again. The digest of a text that is no report is zero.
func digestOf(text []byte) (d digest) {
	var o reportObject
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &o) != nil {
		return d
	}
	o.Metadata.Labels = map[string]string{managedBy: o.Metadata.Labels[managedBy]}
	for i := range o.Results {
		o.Results[i].Timestamp = metav1.Timestamp{}
	}
	canonical, err := json.Marshal(o)
	if err != nil {
		return d
	}
	sum := sha256.Sum256(canonical)
	return digest(sum[:len(d)])
}

// NewReports returns Reports for a cluster and lists the reports of earlier runs. version
// is one of ReportAPIs, or empty for the first one that the cluster serves. namespaces
// limits the reports that RemoveOld removes; if it is empty, it removes old reports in the
// whole cluster. The error says that the cluster has no such resource, or that a request
// failed.
func NewReports(ctx context.Context, config *rest.Config, version string, namespaces []string) (*Reports, error) {
	client, err := newClient(config, DefaultPageSize)
	if err != nil {
		return nil, err
	}
	r := &Reports{client: client, now: time.Now, known: make(map[reportKey]*knownReport)}
	for i := range reportAPIs {
		api := &reportAPIs[i]
		if version != "" && version != api.String() {
			continue
		}
		found, err := client.get(ctx, "/apis/"+api.String(), new(metav1.APIResourceList))
		if err != nil {
			return nil, fmt.Errorf("cannot ask the API server for %s: %w", api, err)
		}
		if found {
			r.api = api
			return r, r.read(ctx, namespaces)
		}
	}
	wanted := version
	if wanted == "" {
		wanted = fmt.Sprint(ReportAPIs())
	}
	return nil, fmt.Errorf("cannot write reports: the cluster has none of their resources, want %s; install its CustomResourceDefinitions", wanted)
}

// read fills known.
func (r *Reports) read(ctx context.Context, namespaces []string) error {
	paths := []string{r.path(r.api.clusterResource, ""), r.path(r.api.resource, "")}
	if len(namespaces) > 0 {
		paths = nil
		for _, namespace := range namespaces {
			paths = append(paths, r.path(r.api.resource, namespace))
		}
	}
	for _, at := range paths {
		err := r.client.list(ctx, &listing{
			path: at, params: url.Values{"labelSelector": {managedBy + "=" + reportManager}},
			visit: func(text json.RawMessage) error {
				m := headOf(text)
				r.known[reportKey(m)] = &knownReport{digest: digestOf(text)}
				return nil
			},
		})
		if err != nil {
			return fmt.Errorf("cannot list the reports of earlier audits: %w", err)
		}
	}
	return nil
}

func (r *Reports) path(resource, namespace string) string {
	base := "/apis/" + r.api.String()
	if namespace != "" {
		base += "/namespaces/" + namespace
	}
	return path.Join(base, resource)
}

// at returns where a report is.
func (r *Reports) at(key reportKey) string {
	if key.namespace == "" {
		return path.Join(r.path(r.api.clusterResource, ""), key.name)
	}
	return path.Join(r.path(r.api.resource, key.namespace), key.name)
}

// The parts of a report, with the JSON names that both APIs have.
type (
	reportObject struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   reportMetadata `json:"metadata"`
		Source     string         `json:"source,omitempty"`
		Scope      objectRef      `json:"scope"`
		Summary    reportSummary  `json:"summary"`
		Results    []finding      `json:"results"`
	}
	reportMetadata struct {
		Name      string                  `json:"name"`
		Namespace string                  `json:"namespace,omitempty"`
		Labels    map[string]string       `json:"labels"`
		Owners    []metav1.OwnerReference `json:"ownerReferences"`
	}
	objectRef struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace,omitempty"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
	}
	reportSummary struct {
		Pass  int `json:"pass"`
		Fail  int `json:"fail"`
		Warn  int `json:"warn"`
		Error int `json:"error"`
		Skip  int `json:"skip"`
	}
	finding struct {
		Source     string            `json:"source"`
		Policy     string            `json:"policy"`
		Result     string            `json:"result"`
		Scored     bool              `json:"scored,omitempty"`
		Message    string            `json:"message"`
		Timestamp  metav1.Timestamp  `json:"timestamp"`
		Properties map[string]string `json:"properties,omitempty"`
	}
)

// Write writes the report of an object with server-side apply. It does nothing if the
// object has no findings or no uid, or if the report is unchanged.
func (r *Reports) Write(ctx context.Context, result *report.Result) error {
	if result.UID == "" || !result.IsNews() {
		return nil
	}
	o := r.report(result)
	found := r.now()
	for i := range o.Results {
		o.Results[i].Timestamp = metav1.Timestamp{Seconds: found.Unix(), Nanos: int32(found.Nanosecond())}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	content, key := digestOf(text), reportKey{o.Metadata.Namespace, o.Metadata.Name}
	if known := r.known[key]; known != nil && known.digest == content {
		known.seen = true
		return nil
	}
	err = r.client.rest.Patch(types.ApplyPatchType).AbsPath(r.at(key)).
		Param("fieldManager", reportManager).Param("force", "true").Body(text).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("cannot write the %s of %s: %w", o.Kind, result.Object(), err)
	}
	r.known[key] = &knownReport{content, true}
	return nil
}

// report returns the report of an object, without what differs from run to run.
func (r *Reports) report(result *report.Result) *reportObject {
	o := &reportObject{APIVersion: r.api.String(), Kind: r.api.kind, Scope: objectRef{
		result.APIVersion, result.Kind, result.Namespace, result.Name, result.UID,
	}}
	if result.Namespace == "" || result.APIVersion == "v1" && result.Kind == "Namespace" {
		o.Kind, o.Scope.Namespace = r.api.clusterKind, ""
	}
	if r.api.hasSource {
		o.Source = reportSource
	}
	o.Metadata = reportMetadata{
		Name: "fastadmit-" + result.UID, Namespace: o.Scope.Namespace, Labels: map[string]string{managedBy: reportManager},
		// The report goes with its object.
		Owners: []metav1.OwnerReference{{APIVersion: result.APIVersion, Kind: result.Kind, Name: result.Name, UID: types.UID(result.UID)}},
	}
	result.Walk(func(part *report.Result, depth int) {
		properties := map[string]string{"operation": part.Operation}
		if depth > 0 {
			properties["object"] = nameIn(part.Object())
		}
		if part.User != "" {
			properties["user"] = nameIn(part.User)
		}
		switch part.Decision {
		case report.Denied:
			o.add(part.Plugin, "fail", part.Message, properties)
		case report.Failed, report.Broken:
			o.add(part.Plugin, "error", part.Message, properties)
		}
		for _, f := range part.FurtherDenials {
			o.add(f.Plugin, "fail", f.Message, properties)
		}
		for _, w := range part.Warnings {
			o.add(w.Plugin, "warn", w.Message, properties)
		}
		for _, w := range part.Audits {
			o.add(w.Plugin, "warn", w.Message, properties)
		}
		for _, w := range part.Ignored {
			o.add(w.Plugin, "error", w.Message, properties)
		}
	})
	return o
}

// add adds a finding, and counts it, also where there is no room for another.
func (o *reportObject) add(plugin, result, message string, properties map[string]string) {
	switch result {
	case "fail":
		o.Summary.Fail++
	case "warn":
		o.Summary.Warn++
	case "error":
		o.Summary.Error++
	}
	if len(o.Results) >= findingsMax {
		return
	}
	if plugin == "" {
		plugin = reportSource
	}
	o.Results = append(o.Results, finding{
		Source: reportSource, Policy: plugin, Result: result, Scored: result == "fail", Message: messageIn(message), Properties: properties,
	})
}

// messageIn returns a message in the form that reports have: with escapes for characters that are not
// printable, because terminals show reports. It cuts the message before escaping, which takes long, and
// again after it.
func messageIn(message string) string {
	return codec.TruncateString(printable.Plain(codec.TruncateString(message, messageMax)), messageMax)
}

// nameIn returns a name in the form that reports have.
func nameIn(name string) string {
	return codec.TruncateString(printable.Word(codec.TruncateString(name, nameMax)), nameMax)
}

// RemoveOld removes the reports of earlier runs for which Write was not called in this run,
// and returns their number. The error joins the errors of all requests.
func (r *Reports) RemoveOld(ctx context.Context) (removed int, err error) {
	var errs []error
	for key, known := range r.known {
		if known.seen {
			continue
		}
		err := r.client.rest.Delete().AbsPath(r.at(key)).Do(ctx).Error()
		switch {
		case ctx.Err() != nil:
			return removed, context.Cause(ctx)
		case err == nil:
			removed++
		case !apierrors.IsNotFound(err): // its object is gone, and it with that
			errs = append(errs, fmt.Errorf("cannot remove an old report: %w", err))
		}
	}
	return removed, errors.Join(errs...)
}
