package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A fake is a server with the APIs of EC2 and Compute Engine.
type fake struct {
	url     string
	volumes map[string][]string          // zones of the volumes that EC2 gives for a name
	disks   map[string]map[string]string // zones of zonal disks as GCE gives them, by place and name
	replica map[string][]string          // zones of regional disks
	zones   []string
	broken  atomic.Bool // the APIs answer with errors
	asked   atomic.Int64
	wait    chan struct{} // the APIs answer after it is closed; nil for at once
}

const zonesURL = "https://www.googleapis.com/compute/v1/projects/project/"

// newFake starts a fake, and sets the environment in which the SDKs find it and their
// credentials.
func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{zones: []string{"us-central1-a", "us-central1-b", "us-central1-c"}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL
	for key, value := range map[string]string{
		"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_MAX_ATTEMPTS": "1",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
		"AWS_ENDPOINT_URL_EC2": f.url + "/ec2", "GOOGLE_APPLICATION_CREDENTIALS": f.credentials(t),
	} {
		t.Setenv(key, value)
	}
	return f
}

// credentials writes the key of a service account of Google.
func (f *fake) credentials(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "project", "private_key_id": "1", "client_email": "a@project.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": f.url + "/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, account, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (f *fake) google() gceConfig {
	return gceConfig{endpoint: f.url + "/compute/v1/", project: "project", region: "us-central1"}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)
		return
	}
	f.asked.Add(1)
	if f.wait != nil {
		select {
		case <-f.wait:
		case <-r.Context().Done():
		}
	}
	if f.broken.Load() {
		http.Error(w, "broken", http.StatusForbidden) // an error that no client retries
		return
	}
	if path, ok := strings.CutPrefix(r.URL.Path, "/compute/v1/projects/project/"); ok {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
			http.Error(w, "nobody known", http.StatusUnauthorized)
			return
		}
		f.compute(w, r, strings.Split(path, "/"))
		return
	}
	f.ec2(w, r)
}

func (f *fake) ec2(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("Action") != "DescribeVolumes" || !strings.Contains(r.Header.Get("Authorization"), "Credential=id/") {
		http.Error(w, "another action, or nobody known", http.StatusUnauthorized)
		return
	}
	id := r.FormValue("VolumeId.1")
	zones, ok := f.volumes[id]
	if !ok {
		code := "InvalidVolume.NotFound"
		if !strings.HasPrefix(id, "vol-") {
			code = "InvalidParameterValue"
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "<Response><Errors><Error><Code>%s</Code><Message>no "+
			"volume</Message></Error></Errors><RequestID>1</RequestID></Response>", code)
		return
	}
	type volume struct {
		ID   string `xml:"volumeId"`
		Zone string `xml:"availabilityZone,omitempty"`
	}
	var answer struct {
		XMLName xml.Name `xml:"DescribeVolumesResponse"`
		Volumes []volume `xml:"volumeSet>item"`
	}
	for _, zone := range zones {
		answer.Volumes = append(answer.Volumes, volume{id, zone})
	}
	if err := xml.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

// compute answers for zones, zones/ZONE/disks/NAME and regions/REGION/disks/NAME.
func (f *fake) compute(w http.ResponseWriter, r *http.Request, path []string) {
	var answer any
	switch {
	case len(path) == 1 && path[0] == "zones":
		var items []map[string]string
		for _, zone := range append(f.zones, "europe-west4-a") {
			items = append(items, map[string]string{"name": zone, "region": zonesURL + "regions/" + zone[:strings.LastIndex(zone, "-")]})
		}
		answer = map[string]any{"items": items}
	case len(path) == 4 && path[0] == "zones" && path[2] == "disks":
		zone, ok := f.disks[path[1]][path[3]]
		if ok {
			answer = map[string]string{"name": path[3], "zone": zone}
		}
	case len(path) == 4 && path[0] == "regions" && path[2] == "disks":
		zones, ok := f.replica[path[3]]
		if ok {
			answer = map[string]any{"name": path[3], "region": zonesURL + "regions/" + path[1], "replicaZones": zones}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if answer == nil {
		w.WriteHeader(http.StatusNotFound)
		answer = map[string]any{"error": map[string]any{"code": http.StatusNotFound, "message": "there is no " + r.URL.Path}}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}
