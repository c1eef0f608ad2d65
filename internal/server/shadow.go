package server

import (
	"encoding/json"
	"net/http"
)

// ShadowPath is the path of the ops port with the differences that the shadow found.
const ShadowPath = "/shadow"

// shadowPage answers with a shadow.Report in JSON. Names that users chose are escaped.
func (s *Server) shadowPage(w http.ResponseWriter, _ *http.Request) {
	report, ok := s.shadow.Report()
	if !ok {
		http.Error(w, "the configuration has no shadow", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(printableWriter{w})
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(&report) // fails if the client is gone
}
