package odd

import (
	"io"
	"net/http"
	"slices"
	"strings"
)

// BMCKinds are all kinds, family by family.
var BMCKinds = slices.Concat(linkKinds, memberKinds, pageKinds, valueKinds, refusalKinds, momentKinds, orderKinds, sessionKinds, slowKinds)

const unknownHost = "https://bmc.internal.invalid"

const iloText = "See @Message.ExtendedInfo for more information."

// lastSegment is the name of a resource in its path.
func lastSegment(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

func iloRefusal(id string, args ...any) map[string]any {
	message := map[string]any{"MessageId": id}
	if args != nil {
		message["MessageArgs"] = args
	}
	return map[string]any{"error": map[string]any{"code": "iLO.0.10.ExtendedInfo", "message": iloText, "@Message.ExtendedInfo": []any{message}}}
}

// refusalKind refuses an order for good.
func refusalKind(name, source string, serve func(Place) serveFunc, words ...string) *BMCKind {
	return &BMCKind{Name: "refusal: " + name, Source: source, Scope: ScopeOrder, Cost: CostResource, Words: words, serve: serve}
}

var refusalKinds = []*BMCKind{
	refusalKind("an id without words", "HPE iLO: ilo-fans-controller 2", refuseOrders(http.StatusBadRequest, iloRefusal("iLO.2.24.MaxVirtualMediaConnectionEstablished")), "MaxVirtualMediaConnectionEstablished"),
	refusalKind("an id with arguments", "HPE iLO: ansible 51818", refuseOrders(http.StatusBadRequest, iloRefusal("Base.1.18.ActionNotSupported", "OddAction")), "ActionNotSupported"),
	refusalKind("403 without words", "HPE iLO", refuseOrders(http.StatusForbidden, iloRefusal("Base.1.18.InsufficientPrivilege")), "InsufficientPrivilege"),
	refusalKind("no ExtendedInfo", "old AMI", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "Base.1.0.GeneralError", "message": "the interlock is engaged"}}), "interlock"),
	refusalKind("plain text", "lighttpd", refuseOrdersText(http.StatusBadRequest, "text/plain", "the interlock is engaged\n"), "interlock"),
	refusalKind("a page", "lighttpd", refuseOrdersText(http.StatusInternalServerError, "text/html", "<html><head><title>500 Internal Server Error</title></head>\n<body>500</body></html>"), "500"),
	refusalKind("empty body", "old Supermicro", refuseOrdersText(http.StatusBadRequest, "application/json", ""), "400"),
	refusalKind("ExtendedInfo an object", "Quanta", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "x", "message": "see", "@Message.ExtendedInfo": map[string]any{"MessageId": "Odd.1.0.Interlock", "Message": "the interlock is engaged"}}}), "interlock"),
	refusalKind("ExtendedInfo at the top", "old iDRAC", refuseOrders(http.StatusBadRequest, map[string]any{"@Message.ExtendedInfo": []any{map[string]any{"MessageId": "Odd.1.0.Interlock", "Message": "the interlock is engaged"}}}), "interlock"),
	refusalKind("numbers in the arguments", "OpenBMC", refuseOrders(http.StatusBadRequest, refusalDocument("Odd.1.0.Interlock", "the interlock is engaged", 7, nil, map[string]any{})), "interlock"),
	refusalKind("arguments a text", "AMI", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "x", "message": "see", "@Message.ExtendedInfo": []any{map[string]any{"MessageId": "Odd.1.0.Interlock", "Message": "the interlock is engaged", "MessageArgs": "one"}}}}), "interlock"),
	refusalKind("a message that is a number", "hostile", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"code": 7, "message": "the interlock is engaged", "@Message.ExtendedInfo": []any{map[string]any{"MessageId": 7, "Message": 7}}}}), "interlock"),
	refusalKind("error a text", "Flask in front of a BMC", refuseOrders(http.StatusBadRequest, map[string]any{"error": "the interlock is engaged"}), "interlock"),
	refusalKind("messages null", "gofish", refuseOrders(http.StatusBadRequest, map[string]any{"error": map[string]any{"message": "the interlock is engaged", "@Message.ExtendedInfo": nil}}), "interlock"),
	refusalKind("501", "parts that a model lacks", refuseOrders(http.StatusNotImplemented, refusalDocument("Base.1.8.GeneralError", "the interlock is engaged")), "interlock"),
	refusalKind("200 with an error in it", "Cisco CIMC", refuseOrders(http.StatusOK, refusalDocument("Odd.1.0.Interlock", "the interlock is engaged")), "interlock"),
	refusalKind("what the request said, sent back", "debug builds", answerOrders(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		sendJSON(w, http.StatusBadRequest, refusalDocument("Odd.1.0.Interlock", "the interlock is engaged; you sent "+r.Header.Get("Authorization")+r.Header.Get("X-Auth-Token")+" "+string(text)))
	}), "interlock"),
}
